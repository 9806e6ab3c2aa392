"""What our programs share at their outer edge."""

import sys

from dlbench import Error


def run_program(main):
    """Call `main`; an error for people ends the program with one clear line, not a traceback.

    Those are our own Error and OSErrors (files); anything else is a bug and
    keeps its traceback.
    """
    try:
        main()
    except (Error, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted")


def add_configfile(parser):
    """The option that says which study a program is about."""
    parser.add_argument(
        "--configfile", nargs="+", default=[], help="laid over config.yaml, as by the workflow"
    )
