"""Install a trainer's pinned environment with uv and list its packages.

Packages that the lock file does not name, or that belong to an extra (Horovod), stay.
"""

import argparse
from pathlib import Path

from dlbench.common.command_line import run_program
from dlbench.images import make_environment


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project", type=Path, help="folder with pyproject.toml and uv.lock")
    parser.add_argument("--extra", action="append", default=[], help="also this extra")
    parser.add_argument("--group", action="append", default=[], help="also this group")
    parser.add_argument("--output", type=Path, help="JSON list of what is installed")
    args = parser.parse_args()
    make_environment.make_environment(args.project, args.extra, args.group, args.output)


if __name__ == "__main__":
    run_program(main)
