"""Convert an image to the form that a runtime needs, and check from inside that it is usable."""

import argparse
import contextlib
import json
from pathlib import Path

from dlbench.common import plugins
from dlbench.common.command_line import run_program
from dlbench.images import prepare_image, trainer_image


def main():
    runtimes = [
        name for name in plugins.names("runtimes") if plugins.load("runtimes", name).CONTAINED
    ]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", type=Path, help="image.json, as make_image.py wrote it")
    parser.add_argument("--runtime", required=True, choices=runtimes)
    parser.add_argument("--options", type=json.loads, default={}, help="of the runtime, JSON")
    parser.add_argument("--python", default="python3", help="the interpreter inside")
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument(
        "--any-packages", action="store_true", help="also without TensorFlow: not for our trainer"
    )
    parser.add_argument("--output", required=True, type=Path, help="JSON; its folder has no suffix")
    parser.add_argument(
        "--keep-failure", action="store_true", help="write into it why it fails, and exit with 0"
    )
    args = parser.parse_args()
    with (
        trainer_image.record_failure(args.output) if args.keep_failure else contextlib.nullcontext()
    ):
        prepare_image.prepare(
            trainer_image.read(args.image),
            args.runtime,
            args.options,
            args.python,
            args.device == "gpu",
            args.output,
            args.any_packages,
        )


if __name__ == "__main__":
    run_program(main)
