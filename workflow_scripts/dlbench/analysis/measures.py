"""Metrics that programs name, beside the numbers of the runs table.

A row with its metrics has a key for each (`Metric.column`), so that what compares throughput
compares them, too. A metric whose unit or direction differs between runs is not compared.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from dlbench.analysis import estimates
from dlbench.log.event_fields import SUCCEEDED
from dlbench.tables import cells
from dlbench.tables.cells import Row
from dlbench.tables.metrics import PREFIX, Metric


@dataclass(frozen=True)
class Named:
    """The metrics that the runs of a study name.

    Attributes:
        metrics: those that can be compared, by name.
        unlike: why the others cannot, by name.
    """

    metrics: dict[str, Metric] = field(default_factory=dict)
    unlike: dict[str, str] = field(default_factory=dict)


NONE = Named()


def named(table: Iterable[Row]) -> Named:
    """The metrics in the rows of the table of metrics, in the order of their names."""
    first: dict[str, Row] = {}
    unlike: dict[str, str] = {}
    for row in table:
        one = first.setdefault(row["name"], row)
        for key in ("unit", "better"):
            if row[key] != one[key]:
                unlike.setdefault(
                    row["name"],
                    f"{key} is {one[key]!r} in {one['run_id']} and {row[key]!r} in {row['run_id']}",
                )
    return Named(
        {
            name: Metric.named(name, first[name]["unit"], first[name]["better"])
            for name in sorted(first.keys() - unlike.keys())
        },
        unlike,
    )


def attached(rows: Iterable[Row], table: Iterable[Row]) -> list[Row]:
    """Rows of the runs table with the values of their metrics, by `Metric.column`.

    `table`: rows of the table of metrics.
    """
    values: dict[str, Row] = {}
    for one in table:
        values.setdefault(one["run_id"], {})[PREFIX + one["name"]] = one["value"]
    return [row | values.get(row["run_id"], {}) for row in rows]


def mean_of(rows: Sequence[Row], metric: Metric) -> Callable[[Sequence[float]], estimates.Estimate]:
    """What estimates the mean of a metric: geometric if all completed runs have values above 0."""
    return estimates.arithmetic_mean if not_positive(rows, metric) else estimates.mean


def not_positive(rows: Sequence[Row], metric: Metric) -> Row | None:
    """The first completed run whose value has no logarithm; None if all have one."""
    having = (row for row in rows if not cells.is_absent(row.get(metric.column)))
    return next((r for r in having if r["status"] in SUCCEEDED and r[metric.column] <= 0), None)
