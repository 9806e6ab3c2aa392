"""Install a trainer's pinned environment with uv and list what is in it.

Packages beside the pinned ones (Horovod, which is an extra) stay.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path

from dlbench import Error
from dlbench.common import tools
from dlbench.common.command_line import run_program
from dlbench.common.files import sha256, write_json

LIST_PACKAGES = (
    "import importlib.metadata, json, platform;"
    "print(json.dumps({'python': platform.python_version(), 'packages':"
    " {d.metadata['Name']: d.version for d in importlib.metadata.distributions()}}))"
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project", type=Path, help="folder with pyproject.toml and uv.lock")
    parser.add_argument("--extra", action="append", default=[], help="also this extra")
    parser.add_argument("--group", action="append", default=[], help="also this group")
    parser.add_argument("--output", type=Path, help="JSON list of what is installed")
    args = parser.parse_args()
    extras = [word for extra in args.extra for word in ("--extra", extra)]
    groups = [word for group in args.group for word in ("--group", group)]
    # VIRTUAL_ENV is that of the workflow; uv would warn that it is not this project's.
    environment = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    # Its folder may be moved or copied; a uv that does not know of it says so and goes on.
    environment.setdefault("UV_PREVIEW_FEATURES", "relocatable-envs-default")
    # Bytecode now: where Python may not write it, each rank's start would take 3 s more.
    options = ["--project", args.project, "--frozen", "--inexact", "--compile-bytecode"]
    finished = subprocess.run(
        [tools.find_uv(), "sync", *options, *extras, *groups],
        env=environment,
        check=False,
    )
    if finished.returncode != 0:
        raise Error(f"uv could not install {args.project}; its messages are above")
    if args.output:
        python = args.project / ".venv" / "bin" / "python"
        listed = subprocess.run(
            [python, "-c", LIST_PACKAGES], capture_output=True, text=True, check=True
        )
        lock = {"lock_sha256": sha256(args.project / "uv.lock")}
        write_json(args.output, {**json.loads(listed.stdout), **lock})


if __name__ == "__main__":
    run_program(main)
