"""Which nodes, and groups of nodes, keep the bounds that a site states; and which is the slowest.

- Runs and baselines of one node are that node's; those of several, whose `node` lists them, are of
  that group. Names are without their domain.
- A bound is about each node, or group of one size, if it matches a result of some of them. It fails
  if the geometric mean is outside of it, or a run ended without result. A node without such a
  result is not measured, which is neither pass nor fail.
- The ranking needs no bounds: of each condition the mean of a node over the median of all nodes,
  and of each node the lowest of these ratios.
"""

import math
import statistics
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dlbench import Error
from dlbench.analysis import estimates
from dlbench.baselines import collectives
from dlbench.common import host_lists
from dlbench.comparison import bounds
from dlbench.comparison.campaigns import ITEM_RATE, JOINABLE, Measured
from dlbench.log.event_fields import SUCCEEDED
from dlbench.machine import host_name
from dlbench.study.wording import number
from dlbench.tables.cells import Row

Group = tuple[str, ...]

SKIPPED = "skipped"
SEVERAL = "several"  # in a bound: any number of nodes above one
# What chooses a baseline, as columns of their table; none that says where it was measured.
OF_BASELINES = (
    *("measure", "framework", "framework_version", "environment", "runtime", "runtime_options"),
    *("strategy", "strategy_options", "launcher", "precision", "dataset", "device_kind"),
    *("device_model", "nodes", "devices_per_node", "devices", "threads_per_device", "size_bytes"),
)
# Of a baseline `value` is in the unit of its row.
BASELINE_UNITS: dict[str, str | None] = {"value": None, "time_s": "s"}
CAUSES = {
    "matrix_product": "clocks or power of a GPU are limited, or another job uses it",
    "memory_copy": "memory of a device (ECC, other jobs), or its clocks",
    "host_to_device": "a PCIe link with fewer lanes, or cores far from the GPU",
    "file_read_cold": "storage of that node, or others that use it",
    "file_read_warm": "memory of the host, or other jobs on the node",
    "items_read": "cores that others use or that are limited",
}
OF_ONE_NODE, OF_SEVERAL = (
    "a link between GPUs of the node (nvidia-smi nvlink --status)",
    "a link or adapter of a node (ibstat), or another network (column nccl_network)",
)
OF_RUNS = "see its baselines; if these pass: input, cores, or other jobs"
OF_RUNS_ACROSS = "see its all-reduce; if that passes: one of its nodes alone"


@dataclass(frozen=True)
class Result:
    """A run or baseline, and where it was measured.

    Attributes:
        nodes: their names, in order.
        fields: what a bound may match, and the condition if `condition` names it.
        condition: fields in which results of one condition agree.
        numbers: by metric.
        rate: the metric by which nodes are ranked; more is better.
        status: of a run; of a baseline ok, or skipped with the `reason`.
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
    def value(self) -> float | None:
        return _positive(self.numbers.get(self.rate)) if self.status in SUCCEEDED else None

    @property
    def label(self) -> str:
        """A few words for what was measured."""
        names = ("measure", "model", "dataset", "batch_per_device", "strategy", "precision")
        words = [str(self.fields[name]) for name in names if self.fields.get(name) is not None]
        size = self.fields.get("size_bytes")
        return " ".join([*words, f"{size:g} B"] if size else words)


@dataclass(frozen=True)
class Judged:
    """A node or a group of nodes.

    Attributes:
        nodes: their names.
        failures: what did not keep its bound, one sentence each.
        missing: what was not measured, one sentence each.
        kept: how many bounds were kept.
        ratio: the lowest of this node over the median of all, and `slowest` what that is of; None
            if nothing was measured elsewhere too.
    """

    nodes: Group
    failures: tuple[str, ...]
    missing: tuple[str, ...]
    kept: int
    ratio: float | None = None
    slowest: str = ""

    @property
    def name(self) -> str:
        return host_lists.compact_hosts(self.nodes)

    @property
    def is_bounded(self) -> bool:
        """Whether any bound is about it."""
        return bool(self.failures or self.missing or self.kept)

    @property
    def passed(self) -> bool | None:
        """Whether all bounds are kept; None if that is not known."""
        if self.failures:
            return False
        return True if self.kept and not self.missing else None


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
            status=SKIPPED if row.get("value") is None else "ok",
            reason=row.get("unknown") or "",
            unit=row.get("unit") or "",
        )
        for row in rows
        if (nodes := _nodes(row))
    ]


def _nodes(row):
    """The nodes of a row, or () if it does not say."""
    if row.get("node"):
        names = host_lists.expand_hosts(row["node"])
    else:
        names = [row["host"]] if row.get("nodes") == 1 and row.get("host") else []
    return in_order(map(host_name.short, names))


def in_order(names: Iterable[str]) -> Group:
    """Names of nodes in the order of their numbers, each once."""
    return tuple(host_lists.expand_hosts(host_lists.compact_hosts(names)))


def judge(
    wanted: Sequence[bounds.Bound], results: Sequence[Result], expected: Iterable[str] = ()
) -> list[Judged]:
    """The nodes and groups with what they keep, those that fail first, then the slowest.

    Args:
        expected: nodes that must have results of their own.

    Raises:
        Error: a bound matches nothing, or results of several conditions, or another unit.
    """
    by_nodes: dict[Group, list[Result]] = {(name,): [] for name in expected}
    for result in results:
        by_nodes.setdefault(result.nodes, []).append(result)
    said: dict[str, dict[Group, list[str]]] = {
        kind: {nodes: [] for nodes in by_nodes} for kind in ("failed", "missing", "kept")
    }
    mistakes = []
    for bound in wanted:
        of_bound = {
            nodes: [one for one in own if _matches(one, bound)] for nodes, own in by_nodes.items()
        }
        sizes = {len(nodes) for nodes, own in of_bound.items() if own}
        if mistake := _mistake(bound, [one for own in of_bound.values() for one in own], results):
            mistakes.append(mistake)
            continue
        for nodes, own in of_bound.items():
            if len(nodes) in sizes:
                kind, sentence = _outcome(bound, own, len(nodes))
                said[kind][nodes].append(sentence)
    if mistakes:
        raise Error("\n".join(mistakes))
    lowest = _lowest_ratios(by_nodes)
    judged = [
        Judged(
            nodes,
            tuple(said["failed"][nodes]),
            tuple(said["missing"][nodes]),
            len(said["kept"][nodes]),
            *lowest.get(nodes, (None, "")),
        )
        for nodes in by_nodes
    ]
    return sorted(judged, key=_rank)


def _rank(one):
    verdict = {False: 0, None: 1, True: 2}[one.passed]
    return len(one.nodes), verdict, math.inf if one.ratio is None else one.ratio, one.nodes


def _matches(result, bound):
    for name, wanted in bound.match.items():
        value = result.fields.get(name)
        if name == "nodes" and wanted == SEVERAL:
            if not (isinstance(value, int) and value > 1):
                return False
        # 1 == True in Python; in a file of bounds it is not.
        elif value != wanted or isinstance(value, bool) != isinstance(wanted, bool):
            return False
    return ("measure" in bound.match) == ("measure" in result.fields)


def _mistake(bound, matched, results):
    """Why a bound cannot be checked; "" if it can, or is of groups that are not measured yet."""
    if not matched:
        size = bound.match.get("nodes")
        if size != 1 and not any(_is_of_size(one, size) for one in results):
            return ""
        is_baseline = "measure" in bound.match
        kind = "baseline" if is_baseline else "run"
        known = sorted({one.label for one in results if ("measure" in one.fields) == is_baseline})
        return (
            f"{bound.where}: matches no {kind}; expected one with "
            f"{', '.join(f'{name} {value}' for name, value in bound.match.items())}, found: "
            f"{'; '.join(known[:10]) or 'none'}"
        )
    # A bound on groups is on those of any size.
    varied = [
        name
        for name in matched[0].condition
        if len({str(one.fields.get(name)) for one in matched}) > 1
        and not (bound.match.get("nodes") == SEVERAL and name in ("nodes", "devices"))
    ]
    if varied:
        return (
            f"{bound.where}: matches several conditions; say under match which, they differ in "
            f"{', '.join(varied)}"
        )
    units = {one.unit for one in matched if one.unit and bound.metric == "value"}
    if units and units != {bound.unit}:
        return f"{bound.where}.unit: found {', '.join(sorted(units))}, and not {bound.unit!r}"
    return ""


def _is_of_size(result, size):
    """Whether a result is of so many nodes; of groups, if the bound names several; of None all."""
    return size is None or len(result.nodes) == size or (size == SEVERAL and len(result.nodes) > 1)


def _outcome(bound, own, size):
    """(failed, missing or kept, a sentence) of a bound and the results of one node or group."""
    finished = [one for one in own if one.status in SUCCEEDED]
    values = [v for one in finished if (v := _positive(one.numbers.get(bound.metric))) is not None]
    failed = Counter(one.status for one in own if one.status not in (*SUCCEEDED, SKIPPED))
    subject = _subject(bound, own)
    if failed:
        ends = ", ".join(f"{count} {status}" for status, count in sorted(failed.items()))
        return "failed", f"{subject}: expected {len(own)} results, found {ends}; see their messages"
    if not values:
        reason = next((one.reason for one in own if one.reason), "no result")
        return "missing", f"{subject}: not measured ({reason})"
    disturbed = sum(one.disturbed for one in finished)
    outcome = bounds.Outcome(bound, estimates.mean(values), {}, disturbed)
    if outcome.passed:
        return "kept", ""
    least, most = bound.limits
    too_low = outcome.measured.value < least
    at = f"at least {number(least)}" if too_low else f"at most {number(most)}"
    return "failed", (
        f"{subject}: expected {at} {bound.unit}, found {number(outcome.measured.value)} "
        f"({outcome.message}); likely: {_cause(bound, size)}"
    )


def _subject(bound, own):
    if own:
        return own[0].label
    return " ".join(str(value) for value in bound.match.values())


def _cause(bound, size):
    measure = bound.match.get("measure")
    if measure in collectives.MEASURES:
        return OF_ONE_NODE if size == 1 else OF_SEVERAL
    if measure is None:
        return OF_RUNS if size == 1 else OF_RUNS_ACROSS
    return CAUSES.get(measure, "see its messages")


def _lowest_ratios(by_nodes):
    """{nodes: (the lowest ratio to the median of all of their size, what it is of)}."""
    means: dict[Any, dict[Group, float]] = {}
    labels = {}
    for nodes, own in by_nodes.items():
        of_key: dict[Any, list[float]] = {}
        for one in own:
            if one.value is not None:
                of_key.setdefault((len(nodes), one.key), []).append(one.value)
                labels[one.key] = one.label
        for key, values in of_key.items():
            means.setdefault(key, {})[nodes] = estimates.mean(values).value
    lowest: dict[Group, tuple[float, str]] = {}
    for (_, key), of_nodes in means.items():
        median = statistics.median(of_nodes.values())
        for nodes, value in of_nodes.items() if len(of_nodes) > 1 else ():
            found = value / median, labels[key]
            lowest[nodes] = min(found, lowest.get(nodes, found))
    return lowest


def _positive(value) -> float | None:
    fits = isinstance(value, int | float) and math.isfinite(value) and value > 0
    return float(value) if fits else None
