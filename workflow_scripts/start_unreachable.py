"""Start a command in a separate network namespace that has only the loopback interface."""

import argparse
import os

from dlbench import Error
from dlbench.common.command_line import run_program
from dlbench.starting import start_unreachable


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="after --: what is started")
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("expected a command after --, found none")
    start_unreachable.enter()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise Error(f"{command[0]} cannot be started: {error.strerror}") from None


if __name__ == "__main__":
    run_program(main)
