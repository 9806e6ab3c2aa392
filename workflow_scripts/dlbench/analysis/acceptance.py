"""Which nodes, and groups of nodes, keep the bounds that a site states; and which is the slowest.

- A bound is about each node, or group of one size, if it matches a result of some of them. It fails
  if the geometric mean is outside of it, or a run ended without result. A node without such a
  result is not measured, which is neither pass nor fail.
- The ranking needs no bounds: of each condition the mean of a node over the median of all nodes,
  and of each node the lowest of these ratios.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dlbench import Error
from dlbench.analysis import bounds, estimates
from dlbench.analysis.node_results import SKIPPED, Group, Result, positive
from dlbench.baselines import collectives
from dlbench.common import host_lists, phrases
from dlbench.log.event_fields import SUCCEEDED
from dlbench.study.wording import number

SEVERAL = "several"  # in a bound: any number of nodes above one
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


def judge(
    wanted: Sequence[bounds.Bound], results: Sequence[Result], expected: Iterable[str] = ()
) -> list[Judged]:
    """The nodes and groups with what they keep, those that fail first, then the slowest.

    Args:
        expected: nodes that must have results of their own.

    Raises:
        Error: a bound matches nothing, or results of several conditions, or another unit.
    """
    by_nodes = _by_nodes(results, expected)
    said: dict[str, dict[Group, list[str]]] = {
        kind: {nodes: [] for nodes in by_nodes} for kind in ("failed", "missing", "kept")
    }
    mistakes = []
    for bound in wanted:
        of_bound = _of_bound(bound, by_nodes)
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


def _by_nodes(results, expected):
    by_nodes: dict[Group, list[Result]] = {(name,): [] for name in expected}
    for result in results:
        by_nodes.setdefault(result.nodes, []).append(result)
    return by_nodes


def _of_bound(bound, by_nodes):
    """The results that a bound is about, for each node and group."""
    return {nodes: [one for one in own if _matches(one, bound)] for nodes, own in by_nodes.items()}


def _rank(one):
    verdict = {False: 0, None: 1, True: 2}[one.passed]
    return len(one.nodes), verdict, math.inf if one.ratio is None else one.ratio, one.nodes


def _matches(result, bound):
    for name, wanted in bound.match.items():
        value = result.fields.get(name)
        if name == "nodes" and wanted == SEVERAL:
            if not (isinstance(value, int) and value > 1):
                return False
        elif value is None and result.is_failed_baseline:
            continue  # not known, since nothing was measured
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
    matched = [one for one in matched if not one.is_failed_baseline]
    if not matched:
        return ""
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
    mean = _mean(bound, own)
    failed = Counter(one.status for one in own if one.status not in (*SUCCEEDED, SKIPPED))
    subject = _subject(bound, own)
    if failed:
        ends = ", ".join(f"{count} {status}" for status, count in sorted(failed.items()))
        why = next((one.reason for one in own if one.is_failed_baseline), "see their messages")
        expected = phrases.counted(len(own), "result")
        return "failed", f"{subject}: expected {expected}, found {ends}; {why}"
    if mean is None:
        reason = next((one.reason for one in own if one.reason), "no result")
        return "missing", f"{subject}: not measured ({reason})"
    disturbed = sum(one.disturbed for one in own if one.status in SUCCEEDED)
    outcome = bounds.Outcome(bound, mean, {}, disturbed)
    if outcome.passed:
        return "kept", ""
    least, most = bound.limits
    too_low = mean.value < least
    at = f"at least {number(least)}" if too_low else f"at most {number(most)}"
    return "failed", (
        f"{subject}: expected {at} {bound.unit}, found {number(mean.value)} "
        f"({outcome.message}); likely: {_cause(bound, size)}"
    )


def _mean(bound, own):
    """The Estimate of a bound's metric over the results that completed; None if there are none."""
    values = [positive(o.numbers.get(bound.metric)) for o in own if o.status in SUCCEEDED]
    known = [value for value in values if value is not None]
    return estimates.mean(known) if known else None


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
