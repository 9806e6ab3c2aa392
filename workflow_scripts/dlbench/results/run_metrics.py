"""Rows of the table of metrics, from records and imports, and of those that compare metrics."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlbench.analysis import comparisons, drift, measures
from dlbench.common.phrases import did_you_mean
from dlbench.study.config import Study
from dlbench.tables import parquet_files
from dlbench.tables.cells import Row
from dlbench.tables.metric_columns import METRICS as COLUMNS
from dlbench.tables.metrics import METRICS


def rows(record: dict[str, Any]) -> list[Row]:
    """The rows of a run in the table of metrics."""
    return [{"run_id": record["run_id"], **one} for one in record["summary"].get("metrics", [])]


def imported_rows(folder: Path) -> list[Row]:
    """The rows of the runs of an import; those of earlier versions have no such table."""
    path = folder / "metrics.parquet"
    return parquet_files.read(path, COLUMNS).to_pylist() if path.is_file() else []


def compared(
    study: Study, runs: Sequence[Row], repeated: Sequence[Row], table: Sequence[Row]
) -> tuple[list[Row], list[Row]]:
    """Rows of the tables of comparisons and of drift of metrics.

    Metrics that cannot be compared are printed.

    Args:
        runs, repeated: rows of the tables of runs and of sentinels.
        table: rows of the table of metrics.
    """
    named = measures.named(table)
    for name, why in named.unlike.items():
        print(f"metric {name}: {why}: not compared until all runs agree", file=sys.stderr)
    for entry in study.compare:
        name = entry.get(comparisons.METRIC)
        if name and name not in {**named.metrics, **named.unlike, **METRICS}:
            hint = did_you_mean(name, [*named.metrics, *METRICS])
            print(f"compare: no run has a metric {name!r}{hint}", file=sys.stderr)
    runs, repeated = (measures.attached(rows, table) for rows in (runs, repeated))
    changes = []
    for metric in named.metrics.values():
        if row := measures.not_positive([*runs, *repeated], metric):
            value = row[metric.column]
            print(f"metric {metric.name}: {value:g} in {row['run_id']}: no ratio", file=sys.stderr)
        else:
            common = {"metric": metric.name, "unit": metric.unit}
            changes += [common | row for row in drift.rows(study, runs, repeated, metric)]
    return comparisons.metric_rows(study, runs, repeated, named), changes
