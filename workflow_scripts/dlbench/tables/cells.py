"""Rows of tables, the values in their cells, and names: of tables, runs and sources of times.

`timing_source` of imported runs, and of own ones that another program trained and timed, is the
kind of log. Loads no library.
"""

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


# Of a study, in results/tables; each has its columns in tables/table_columns.py.
OF_STUDY = (
    "runs",
    "evals",
    "accounts",
    "metrics",
    "coverage",
    "comparisons",
    "speedups",
    "published",
    "drift",
    "nodes",
    "explanations",
    "tries",
)
OF_RUN = ("steps", "evals", "samples")  # in the folder of each run
OF_IMPORT = (*OF_RUN, "metrics")  # beside runs, of all runs of an import
# Of machines, in results/tables where they were measured: `snakemake baselines`.
OF_MACHINES = ("baselines",)

MEASURED, PUBLISHED = "dlbench", "published"


def is_own(row: Any) -> bool:
    """Whether dlbench started the run of a row; what is imported or published has a source."""
    return not row.get("source")
