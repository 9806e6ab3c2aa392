"""Build an image, pull it, or use it where it is, and describe it in image.json."""

import argparse
import contextlib
import json
from pathlib import Path

from dlbench.common.command_line import run_program
from dlbench.images import make_image, trainer_image


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="what runs give as their environment")
    parser.add_argument(
        "--settings", type=json.loads, default={}, help="its entry under images in the config, JSON"
    )
    parser.add_argument("--output", required=True, type=Path, help="image.json, in its own folder")
    parser.add_argument("--study", help="for which it is made; others are not to replace it")
    parser.add_argument(
        "--keep-failure", action="store_true", help="write into it why it fails, and exit with 0"
    )
    args = parser.parse_args()
    settings = trainer_image.settings(args.name, {args.name: args.settings})
    recorded = trainer_image.record_failure(args.output, f"image {args.name} could not be made: ")
    with recorded if args.keep_failure else contextlib.nullcontext():
        make_image.make(args.name, settings, args.output, args.study)


if __name__ == "__main__":
    run_program(main)
