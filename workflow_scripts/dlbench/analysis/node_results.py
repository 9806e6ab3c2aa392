"""Results of nodes and groups of nodes: the runs and baselines in the tables of a study.

Runs and baselines of one node are that node's; those of several, whose `node` lists them, are of
that group. Names are without their domain.
"""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from dlbench import Error
from dlbench.analysis import bounds
from dlbench.analysis.campaigns import ITEM_RATE, JOINABLE, Measured
from dlbench.baselines.rounds import NOT_MEASURED
from dlbench.common import host_lists
from dlbench.log.event_fields import SUCCEEDED
from dlbench.machine import hardware
from dlbench.tables.cells import Row

Group = tuple[str, ...]

FAILED, SKIPPED = "failed", "skipped"
# What chooses a baseline, as columns of their table; none that says where it was measured.
OF_BASELINES = (
    *("measure", "framework", "framework_version", "environment", "runtime", "runtime_options"),
    *("strategy", "strategy_options", "launcher", "precision", "dataset", "device_kind"),
    *("device_model", "nodes", "devices_per_node", "devices", "threads_per_device", "size_bytes"),
)
# Of a baseline `value` is in the unit of its row.
BASELINE_UNITS: dict[str, str | None] = {"value": None, "time_s": "s"}


@dataclass(frozen=True)
class Result:
    """A run or baseline, and where it was measured.

    Attributes:
        nodes: their names, in order.
        fields: what a bound may match, and the condition if `condition` names it.
        condition: fields in which results of one condition agree.
        numbers: by metric.
        rate: the metric by which nodes are ranked; more is better.
        status: of a run; of a baseline ok, or skipped or failed with the `reason`.
    """

    nodes: Group
    fields: dict[str, Any]
    condition: tuple[str, ...]
    numbers: dict[str, float]
    rate: str
    status: str = "ok"
    reason: str = ""
    disturbed: bool = False
    unit: str = ""

    @property
    def key(self) -> Hashable:
        """Equal for results that can be compared over nodes."""
        return self.rate, tuple(str(self.fields.get(name)) for name in self.condition)

    @property
    def is_failed_baseline(self) -> bool:
        """Whether it is of a baseline of which only the measure and where it failed is known."""
        return self.status == FAILED and "measure" in self.fields

    @property
    def value(self) -> float | None:
        return positive(self.numbers.get(self.rate)) if self.status in SUCCEEDED else None

    @property
    def label(self) -> str:
        """A few words for what was measured."""
        names = ("measure", "model", "dataset", "batch_per_device", "strategy", "precision")
        words = [str(self.fields[name]) for name in names if self.fields.get(name) is not None]
        size = self.fields.get("size_bytes")
        return " ".join([*words, f"{size:g} B"] if size else words)


def bounded_by(match: dict[str, Any], of_runs: bounds.Bounded = bounds.RUNS) -> bounds.Bounded:
    """What an entry of a file of bounds is about: baselines if it has a `measure`, else runs."""
    if "measure" not in match:
        return of_runs
    return bounds.Bounded(OF_BASELINES, tuple(BASELINE_UNITS), _unit_of_baseline)


def _unit_of_baseline(metric):
    if metric not in BASELINE_UNITS:
        raise Error(f"no metric {metric!r} of baselines; there are: {', '.join(BASELINE_UNITS)}")
    return BASELINE_UNITS[metric]


def of_runs(runs: Iterable[Measured]) -> list[Result]:
    """The Results of runs; those on several nodes whose names are not known are left out."""
    condition = tuple(name for name in JOINABLE if name != "node")
    return [
        Result(
            nodes=nodes,
            fields=run.facts | run.fields,
            condition=condition,
            numbers=run.numbers,
            rate=ITEM_RATE,
            status=run.status,
            disturbed=run.disturbed,
        )
        for run in runs
        if (nodes := _nodes({**run.fields, "host": run.facts.get("host")}))
    ]


def of_baselines(rows: Iterable[Row]) -> list[Result]:
    """The Results of rows of the table of baselines; those of unknown nodes are left out."""
    return [
        Result(
            nodes=nodes,
            fields={name: row.get(name) for name in OF_BASELINES},
            condition=OF_BASELINES,
            numbers={name: row[name] for name in BASELINE_UNITS if row.get(name) is not None},
            rate="value",
            status=_status(row),
            reason=row.get("unknown") or "",
            unit=row.get("unit") or "",
        )
        for row in rows
        if (nodes := _nodes(row))
    ]


def _status(row):
    if row.get("value") is not None:
        return "ok"
    return FAILED if (row.get("unknown") or "").startswith(NOT_MEASURED) else SKIPPED


def _nodes(row):
    """The nodes of a row, or () if it does not say."""
    if row.get("node"):
        names = host_lists.expand_hosts(row["node"])
    else:
        names = [row["host"]] if row.get("nodes") == 1 and row.get("host") else []
    return in_order(map(hardware.short_host, names))


def in_order(names: Iterable[str]) -> Group:
    """Names of nodes in the order of their numbers, each once."""
    return tuple(host_lists.expand_hosts(host_lists.compact_hosts(names)))


def positive(value: Any) -> float | None:
    """The value as a number above 0; None if it is none."""
    fits = isinstance(value, int | float) and math.isfinite(value) and value > 0
    return float(value) if fits else None
