"""Start the processes that measure one baseline of this machine, and wait for their result.

Exit code 0 means that the result exists. Otherwise the output of the processes is in --messages,
and the next start tries again. Of a named node a failure is a result, too.
"""

import argparse
import sys
from pathlib import Path

from dlbench import schedulers
from dlbench.common import command_line
from dlbench.common.command_line import run_program
from dlbench.starting import start_baseline, start_command

TURN = schedulers.take_turn()  # runs of the same job are not measured beside it


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="a run that would be started so, JSON")
    parser.add_argument("--output", required=True, type=Path, help="what the command writes")
    parser.add_argument("--messages", required=True, type=Path, help="what the command prints")
    parser.add_argument("--time-limit-s", type=command_line.real(above=0), default=float("inf"))
    start_command.add_flags(parser)
    parser.add_argument("--site", default="", help="name of the machine, for the table")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="after --: measures, as one process on bare metal"
    )
    sys.exit(start_baseline.start(parser.parse_args()))


if __name__ == "__main__":
    run_program(main)
