"""Helpers for all programs: their exit on an error, and flags with structure."""

import argparse
import gc
import getpass
import os
import sys
from collections.abc import Callable

from dlbench import Error
from dlbench.common import terminal


def name_user() -> None:
    """Call a user of whom the system has no name, as in containers, by the number."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = str(os.getuid())


def run_program(main: Callable[[], object]) -> None:
    """Call `main`; an Error or OSError ends the program with one line instead of a traceback.

    Any other exception is a bug and keeps its traceback.
    """
    try:
        main()
    except (Error, OSError) as error:
        sys.exit(f"error: {terminal.plain(str(error))}")
    except KeyboardInterrupt:
        sys.exit("interrupted")
    finally:
        gc.freeze()  # otherwise Python would traverse all imported objects once more at exit


def parse_job_counts(text: str) -> dict[str, int]:
    """The number of processes of each kind, from a flag such as `chief=1,worker=2`."""
    try:
        pairs = (item.split("=") for item in text.split(","))
        counts = {kind: int(count) for kind, count in pairs}
        if min(counts.values()) < 1:
            raise ValueError
        return counts
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected chief=1,worker=2, found {text!r}") from None
