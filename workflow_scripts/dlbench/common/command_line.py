"""What our programs share at their outer edge."""

import argparse
import sys

from dlbench import Error
from dlbench.common import terminal


def run_program(main):
    """Call `main`; an error for people ends the program with one clear line, not a traceback.

    Those are our own Error and OSErrors (files); anything else is a bug and
    keeps its traceback.
    """
    try:
        main()
    except (Error, OSError) as error:
        sys.exit(f"error: {terminal.plain(str(error))}")
    except KeyboardInterrupt:
        sys.exit("interrupted")


def add_configfile(parser):
    """The option that says which study a program is about."""
    parser.add_argument(
        "--configfile", nargs="+", default=[], help="laid over config.yaml, as by the workflow"
    )


def job_counts(text):
    """How many processes of each kind a command line asks for: {"chief": 1, "worker": 2}."""
    try:
        jobs = {name: int(count) for name, count in (word.split("=") for word in text.split(","))}
        if min(jobs.values()) < 1:
            raise ValueError
        return jobs
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected chief=1,worker=2, found {text!r}") from None
