"""Warn if this start will replace the tables and figures of another study.

A results folder has the runs of all studies, but the tables and figures of the last one only.
"""

import contextlib
import csv
from collections.abc import Iterator
from pathlib import Path

from dlbench.common import tools
from dlbench.tables import timing_sources

RUNS = Path("results/tables/runs.csv")


def lines(study: str) -> Iterator[str]:
    """Yield the warning; nothing if there are no tables, or those of this study."""
    former = _study_of_tables()
    if former not in (None, study):
        elsewhere = tools.dlbench_command("partial --output FOLDER")
        yield (
            f"tables and figures in results/ are those of the study {former}; those of {study} "
            f"take their place. {elsewhere} puts a study's elsewhere"
        )


def _study_of_tables():
    unreadable = contextlib.suppress(OSError, csv.Error, UnicodeDecodeError)
    with unreadable, open(RUNS, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if timing_sources.is_own(row) and row.get("study"):
                return row["study"]
    return None
