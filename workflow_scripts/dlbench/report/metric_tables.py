"""The report's table of metrics: means by condition, of numbers that programs name."""

import math
from collections.abc import Sequence

from dlbench.analysis import measures
from dlbench.log import event_fields
from dlbench.report import report_tables
from dlbench.report.report_tables import Column, DataTable, six_digits
from dlbench.tables.cells import Row


def by_condition(runs: Sequence[Row], table: Sequence[Row]) -> DataTable:
    """A row for each metric and condition.

    Args:
        runs: rows of the runs table.
        table: rows of the table of metrics.
    """
    named = measures.named(table)
    runs = measures.attached(runs, table)
    rows = [
        (metric, name, values, measures.mean_of(runs, metric)(values))
        for metric in named.metrics.values()
        for name, values in _conditions(runs, metric)
    ]
    metrics, names, values, means = zip(*rows, strict=True) if rows else ((),) * 4
    columns = [
        Column("metric", "text", [metric.name for metric in metrics]),
        Column("combination", "text", list(names)),
        Column("mean", "number", [six_digits(one.value) for one in means], note=_MEAN),
        Column(
            "95 % interval",
            "interval",
            [None if math.isnan(o.low) else (six_digits(o.low), six_digits(o.high)) for o in means],
            note="Student's t, on logarithms where the mean is geometric; none for one run",
        ),
        Column("unit", "text", [metric.unit for metric in metrics]),
        Column("better", "text", [metric.direction for metric in metrics], note=_BETTER),
        Column("runs", "number", list(map(len, values)), note="completed, with that metric"),
    ]
    description = "One row per metric and combination."
    if named.unlike:
        unlike = "; ".join(f"{name}: {why}" for name, why in named.unlike.items())
        description += f" Left out, as runs do not agree in them: {unlike}."
    return DataTable(
        "metrics", "Metrics", description, columns, len(rows), "results/tables/metrics"
    )


_MEAN = "geometric over runs; of a metric with values of 0 or less arithmetic"
_BETTER = "the direction that the program says is better; empty: none"


def _conditions(runs, metric):
    """(name, values of the completed runs) of each condition that has the metric."""
    having = [
        row
        for row in runs
        if row["status"] in event_fields.SUCCEEDED and row.get(metric.column) is not None
    ]
    settings, groups = [], []
    for values, group in report_tables.conditions(having):
        settings.append(values)
        groups.append([row[metric.column] for row in group])
    return zip(report_tables.combination_names(settings), groups, strict=True)
