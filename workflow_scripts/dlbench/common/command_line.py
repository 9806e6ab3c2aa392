"""Helpers for all programs, also inside images: their exit on an error, and types of flags."""

import argparse
import gc
import getpass
import math
import os
import sys
from collections.abc import Callable

from dlbench import Error
from dlbench.common import plugins, terminal


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


def whole(minimum: int, maximum: int = 10**18 - 1) -> Callable[[str], int]:
    """A function that parses a whole number of at least `minimum` and at most `maximum`."""
    bounds = f"of at least {minimum}" if maximum == 10**18 - 1 else f"from {minimum} to {maximum}"

    def number(text: str) -> int:
        plain = text.isdecimal() and text.isascii() and len(text) <= 18
        if not plain or not minimum <= int(text) <= maximum:
            raise argparse.ArgumentTypeError(f"expected a whole number {bounds}, found {text!r}")
        return int(text)

    return number


def real(
    minimum: float | None = None, above: float | None = None, maximum: float | None = None
) -> Callable[[str], float]:
    """A function that parses a finite number from `minimum`, or above `above`, to `maximum`."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        low = (minimum is not None and value < minimum) or (above is not None and value <= above)
        if low or not math.isfinite(value) or (maximum is not None and value > maximum):
            bound = f"above {above:g}" if above is not None else f"of at least {minimum:g}"
            bound += f" and at most {maximum:g}" if maximum is not None else ""
            raise argparse.ArgumentTypeError(f"expected a number {bound}, found {text!r}")
        return value

    return number


def add_dataset(parser: argparse.ArgumentParser) -> None:
    """Add the argument `dataset`, the name of a file, and the user's folder that may have it."""
    parser.add_argument("dataset", help=", ".join(plugins.names("datasets")))
    parser.add_argument("--dataset-folder", help="folder with further files of datasets")


def check_dataset(args: argparse.Namespace) -> None:
    """Search the user's folder, too. Raises Error: the dataset has no file."""
    plugins.add_user_folder("datasets", args.dataset_folder)
    plugins.path("datasets", args.dataset)


def name_of(kind: str) -> Callable[[str], str]:
    """A function that checks the name of a plugin of a kind, see plugins.py."""

    def known(text: str) -> str:
        try:
            plugins.path(kind, text)
        except plugins.UnknownName as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return known
