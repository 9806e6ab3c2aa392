"""Rows of tables and the values in their cells."""

import urllib.parse
from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]  # by column; a column that it lacks is absent


def is_absent(value: Any) -> bool:
    """Whether a cell is empty: None, or nan as pandas has it."""
    return value is None or value != value


def run_names(runs: Iterable[Row], study: str) -> str:
    """The names of some rows of `runs`, as other tables of a study have them.

    That of another study (an import) has the name of the study before it.

    >>> run_names([{"study": "a", "run_id": "1"}, {"study": "b c", "run_id": "1"}], "a")
    '1 b%20c/1'
    """
    return " ".join(run_name(run, study) for run in runs)


def run_name(run: Row, study: str | None) -> str:
    """The name of one row, as of `run_names`."""
    prefix = "" if run.get("study") in (None, study) else f"{run['study']}/"
    return urllib.parse.quote(f"{prefix}{run['run_id']}")
