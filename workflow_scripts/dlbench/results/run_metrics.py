"""Rows of the table of metrics, from records and imports; metrics whose units differ."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dlbench.tables import parquet_files
from dlbench.tables.cells import Row
from dlbench.tables.metric_columns import METRICS


def rows(record: dict[str, Any]) -> list[Row]:
    """The rows of a run in the table of metrics."""
    return [{"run_id": record["run_id"], **one} for one in record["summary"].get("metrics", [])]


def imported_rows(folder: Path) -> list[Row]:
    """The rows of the runs of an import; those of earlier versions have no such table."""
    path = folder / "metrics.parquet"
    return parquet_files.read(path, METRICS).to_pylist() if path.is_file() else []


def report_differing_units(table: Iterable[Row]) -> None:
    """Print metrics that runs give with different units or directions, which are not compared."""
    first: dict[str, Row] = {}
    for row in table:
        one = first.setdefault(row["name"], row)
        for key in ("unit", "better"):
            if row[key] != one[key]:
                print(
                    f"metric {row['name']}: {key} is {row[key]!r} in {row['run_id']} and "
                    f"{one[key]!r} in {one['run_id']}: not compared until all runs agree",
                    file=sys.stderr,
                )
                first[row["name"]] = row
