"""Start a command as several processes of one tf.distribute cluster on this machine.

Exit code 0 means that all ended well; else it is that of the first that failed.
"""

import argparse
import sys

from dlbench import processes
from dlbench.cli import run_program


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--jobs", type=_jobs, required=True, help="kinds of process, as in chief=1,ps=1,worker=2"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="after --: what each runs")
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    sys.exit(processes.run(args.jobs, command))


def _jobs(text):
    try:
        jobs = {name: int(count) for name, count in (word.split("=") for word in text.split(","))}
        if min(jobs.values()) < 1:
            raise ValueError
        return jobs
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected chief=1,worker=2, found {text!r}") from None


if __name__ == "__main__":
    run_program(main)
