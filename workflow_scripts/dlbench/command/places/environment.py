"""Install a trainer's pinned environment with uv and list its packages.

Packages that the lock file does not name, or that belong to an extra (Horovod), stay.
"""

import argparse
from pathlib import Path

from dlbench.images import make_environment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", type=Path, help="folder with pyproject.toml and uv.lock")
    parser.add_argument("--extra", action="append", default=[], help="also this extra")
    parser.add_argument("--group", action="append", default=[], help="also this group")
    parser.add_argument("--output", type=Path, help="JSON list of what is installed")


def run(args: argparse.Namespace) -> None:
    make_environment.make_environment(args.project, args.extra, args.group, args.output)
