"""Accept the nodes of a machine: from the tables of a study and a site's bounds to lists of nodes.

First each node alone, then pairs of those that passed, then all of them together. Nodes of a pair
that fails are measured with others that passed. What is to be measured next follows from what is in
the tables, so the same command is repeated after each round.

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
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.analysis import bounds, campaigns, estimates
from dlbench.analysis.campaigns import ITEM_RATE, JOINABLE, Measured
from dlbench.baselines import collectives, rounds
from dlbench.baselines.rounds import NOT_MEASURED
from dlbench.common import networks, phrases
from dlbench.common.files import atomic_write
from dlbench.common.run_fields import ALWAYS, tagged
from dlbench.log.event_fields import SUCCEEDED
from dlbench.machine import hardware
from dlbench.pages.formats import Cell, Page, Section, Table
from dlbench.study.wording import number
from dlbench.tables import parquet_files
from dlbench.tables.cells import Row
from dlbench.tables.table_columns import BASELINES

Group = tuple[str, ...]

FAILED, MISSING, KEPT, SKIPPED = "failed", "missing", "kept", "skipped"
PASS, FAIL = "nodes.pass", "nodes.fail"  # files with lists of nodes
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
# What chooses a baseline, as columns of their table; none that says where it was measured.
OF_BASELINES = (
    *("measure", "framework_version", "dataset", "device_kind", "device_model", "devices"),
    *(name for name in rounds.CONDITIONS if name != "node"),
    "size_bytes",
)
# Of a baseline `value` is in the unit of its row.
BASELINE_UNITS: dict[str, str | None] = {"value": None, "time_s": "s"}


@dataclass(frozen=True)
class Result:
    """A run or baseline, and where it was measured.

    `nodes` are in order.

    Attributes:
        fields: what a bound may match, and the condition if `condition` names it.
        condition: fields in which results of one condition agree.
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
        names = ("measure", *tagged(ALWAYS), "strategy", "precision")
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
    results = [
        Result(
            nodes=_nodes({**run.fields, "host": run.facts.get("host")}),
            fields=run.facts | run.fields,
            condition=condition,
            numbers=run.numbers,
            rate=ITEM_RATE,
            status=run.status,
            disturbed=run.disturbed,
        )
        for run in runs
    ]
    return [one for one in results if one.nodes]


def of_baselines(rows: Iterable[Row]) -> list[Result]:
    """The Results of rows of the table of baselines; those of unknown nodes are left out."""
    results = [
        Result(
            nodes=_nodes(row),
            fields={name: row.get(name) for name in OF_BASELINES},
            condition=OF_BASELINES,
            numbers={name: row[name] for name in BASELINE_UNITS if row.get(name) is not None},
            rate="value",
            status=_status(row),
            reason=row.get("unknown") or "",
            unit=row.get("unit") or "",
        )
        for row in rows
    ]
    return [one for one in results if one.nodes]


def _status(row):
    if row.get("value") is not None:
        return "ok"
    return FAILED if (row.get("unknown") or "").startswith(NOT_MEASURED) else SKIPPED


def _nodes(row):
    """The nodes of a row, or () if it does not say."""
    host = row["host"] if row.get("nodes") == 1 and row.get("host") else ""
    names = networks.expand_hosts(row["node"]) if row.get("node") else filter(None, [host])
    return in_order(map(hardware.short_host, names))


def in_order(names: Iterable[str]) -> Group:
    """Names of nodes in the order of their numbers, each once."""
    return tuple(networks.expand_hosts(networks.compact_hosts(names)))


def positive(value: Any) -> float | None:
    """The value as a number above 0; None if it is none."""
    fits = isinstance(value, int | float) and math.isfinite(value) and value > 0
    return float(value) if fits else None


@dataclass(frozen=True)
class Judged:
    """A node or a group of nodes.

    Attributes:
        failures, missing: what did not keep its bound, or was not measured, one sentence each.
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
        return networks.compact_hosts(self.nodes)

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

    `expected`: nodes that must have results of their own. Raises Error: a bound matches nothing, or
    results of several conditions, or another unit.
    """
    by_nodes: dict[Group, list[Result]] = {(name,): [] for name in expected}
    for result in results:
        by_nodes.setdefault(result.nodes, []).append(result)
    outcomes = bounds.made_of_all(lambda bound: _outcomes(bound, by_nodes, results), wanted)
    lowest = _lowest_ratios(by_nodes)
    judged = []
    for nodes in by_nodes:
        said: dict[str, list[str]] = {FAILED: [], MISSING: [], KEPT: []}
        for kind, sentence in (of_bound[nodes] for of_bound in outcomes if nodes in of_bound):
            said[kind].append(sentence)
        failures, missing, kept = said.values()
        ratio = lowest.get(nodes, (None, ""))
        judged.append(Judged(nodes, tuple(failures), tuple(missing), len(kept), *ratio))
    return sorted(judged, key=_rank)


def _outcomes(bound, by_nodes, results):
    """{nodes: (FAILED, MISSING or KEPT, a sentence)} of the nodes, or groups of some size, that
    a bound is about. Raises Error: it cannot be checked.
    """
    of_bound = {
        nodes: [one for one in own if _matches(one, bound)] for nodes, own in by_nodes.items()
    }
    if mistake := _mistake(bound, [one for own in of_bound.values() for one in own], results):
        raise Error(f"{bound.where}{mistake}")
    sizes = {len(nodes) for nodes, own in of_bound.items() if own}
    return {
        nodes: _outcome(bound, own, len(nodes))
        for nodes, own in of_bound.items()
        if len(nodes) in sizes
    }


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
        elif not bounds.is_equal(value, wanted):
            return False
    return ("measure" in bound.match) == ("measure" in result.fields)


def _mistake(bound, matched, results):
    """Why a bound cannot be checked; "" if it can, or is of groups that are not measured yet."""
    if not matched:
        return _no_match(bound, results)
    matched = [one for one in matched if not one.is_failed_baseline]
    # A bound on groups is on those of any size.
    any_size = ("nodes", "devices") if bound.match.get("nodes") == SEVERAL else ()
    varied = [
        name
        for name in (matched[0].condition if matched else ())
        if name not in any_size and len({str(one.fields.get(name)) for one in matched}) > 1
    ]
    if varied:
        differing = ", ".join(varied)
        return f": matches several conditions; say under match which, they differ in {differing}"
    units = {one.unit for one in matched if one.unit and bound.metric == "value"}
    if units and units != {bound.unit}:
        return f".unit: found {', '.join(sorted(units))}, and not {bound.unit!r}"
    return ""


def _no_match(bound, results):
    """What a bound that matches nothing lacks; "" if it is of groups that are not measured yet."""
    size = bound.match.get("nodes")
    measured = [
        size in (None, len(one.nodes)) or (size == SEVERAL and len(one.nodes) > 1)
        for one in results
    ]
    if size != 1 and not any(measured):
        return ""
    is_baseline = "measure" in bound.match
    known = sorted({one.label for one in results if ("measure" in one.fields) == is_baseline})
    return (
        f": matches no {'baseline' if is_baseline else 'run'}; expected one with "
        f"{', '.join(f'{name} {value}' for name, value in bound.match.items())}, found: "
        f"{'; '.join(known[:10]) or 'none'}"
    )


def _outcome(bound, own, size):
    """(FAILED, MISSING or KEPT, a sentence) of a bound and the results of one node or group."""
    subject = own[0].label if own else " ".join(map(str, bound.match.values()))
    failed = Counter(one.status for one in own if one.status not in (*SUCCEEDED, SKIPPED))
    if failed:
        ends = ", ".join(f"{count} {status}" for status, count in sorted(failed.items()))
        why = next((one.reason for one in own if one.is_failed_baseline), "see their messages")
        expected = phrases.counted(len(own), "result")
        return FAILED, f"{subject}: expected {expected}, found {ends}; {why}"
    done = [one for one in own if one.status in SUCCEEDED]
    values = [value for one in done if (value := positive(one.numbers.get(bound.metric)))]
    if not values:
        reason = next((one.reason for one in own if one.reason), "no result")
        return MISSING, f"{subject}: not measured ({reason})"
    mean = estimates.mean(values)
    outcome = bounds.Outcome(bound, mean, {}, sum(one.disturbed for one in done))
    if outcome.passed:
        return KEPT, ""
    least, most = bound.limits
    at = f"at least {number(least)}" if mean.value < least else f"at most {number(most)}"
    return FAILED, (
        f"{subject}: expected {at} {bound.unit}, found {number(mean.value)} "
        f"({outcome.message}); likely: {_cause(bound, size)}"
    )


def _cause(bound, size):
    measure = bound.match.get("measure")
    if measure in collectives.MEASURES:
        return OF_ONE_NODE if size == 1 else OF_SEVERAL
    if measure is None:
        return OF_RUNS if size == 1 else OF_RUNS_ACROSS
    return CAUSES.get(measure, "see its messages")


def _lowest_ratios(by_nodes):
    """{nodes: (the lowest ratio to the median of all of their size, what it is of)}."""
    values: dict[Any, dict[Group, list[float]]] = {}
    labels = {}
    for nodes, own in by_nodes.items():
        for one in own:
            if one.value is not None:
                of_key = values.setdefault((len(nodes), one.key), {})
                of_key.setdefault(nodes, []).append(one.value)
                labels[one.key] = one.label
    lowest: dict[Group, tuple[float, str]] = {}
    for (_, key), of_nodes in values.items():
        means = {nodes: estimates.mean(own).value for nodes, own in of_nodes.items()}
        median = statistics.median(means.values())
        for nodes, value in means.items() if len(means) > 1 else ():
            found = value / median, labels[key]
            lowest[nodes] = min(found, lowest.get(nodes, found))
    return lowest


@dataclass(frozen=True)
class Accepted:
    """What is known of the nodes.

    Attributes:
        judged: nodes and groups, as `judge` has them.
        good: nodes that keep their bounds and are not the fault of a group.
        bad: nodes that do not, or are all that their failed groups have in common.
        unknown: nodes of which something was not measured, or no group tells.
        together: groups that failed though each of their nodes passed in another.
        next: groups to measure next.
    """

    judged: tuple[Judged, ...]
    good: Group
    bad: Group
    unknown: Group
    together: tuple[Group, ...]
    next: tuple[Group, ...]

    @property
    def all_passed(self) -> bool:
        """Whether no node and no group has failed or is missing."""
        groups = [one for one in self.judged if len(one.nodes) > 1]
        return not self.bad and not self.unknown and all(one.passed for one in groups)


def read_bounds(path: str | Path, folder: Path) -> list[bounds.Bound]:
    """The Bounds in a file, also on metrics that the runs in a results folder name."""
    runs = folder / "tables/runs.parquet"
    bounded = bounds.Bounded.of(campaigns.read(runs)) if runs.is_file() else bounds.RUNS
    return bounds.read(path, lambda match: bounded_by(match, bounded))


def read(folder: Path) -> list[Result]:
    """The Results in the tables of runs and of baselines of a results folder.

    Raises Error: it has neither.
    """
    runs, baselines = folder / "tables/runs.parquet", folder / "tables/baselines.parquet"
    results: list[Result] = []
    if baselines.is_file():
        rows = parquet_files.read(baselines, BASELINES, earlier=True).to_pylist()
        results += of_baselines(rows)
    if runs.is_file():
        results += of_runs(campaigns.read(runs).runs)
    if not results:
        raise Error(
            f"{folder}: expected runs or baselines of named nodes in {runs} or {baselines}, found "
            "none: start the workflow with studies/gpu_acceptance first"
        )
    return results


def accept(
    results: Sequence[Result],
    wanted: Sequence[bounds.Bound],
    expected: Iterable[str] = (),
) -> Accepted:
    """The nodes that pass and fail, and what to measure next.

    `expected`: nodes that must have been measured alone. Raises Error: a bound cannot be checked.
    """
    names = [hardware.short_host(name) for name in expected]
    # Also nodes of which there are groups alone.
    names += [name for one in results for name in one.nodes]
    judged = judge(wanted, results, in_order(names))
    alone = {one.nodes[0]: one.passed for one in judged if len(one.nodes) == 1}
    bounded_alone = any(one.kept or one.failures for one in judged if len(one.nodes) == 1)
    # In a site's file there may be bounds of groups alone.
    fit = [name for name in alone if alone[name] or not bounded_alone]
    groups = [one for one in judged if len(one.nodes) > 1 and one.passed is not None]
    measured = {frozenset(one.nodes): bool(one.passed) for one in groups}
    good, bad, together, following = _groups(in_order(fit), measured)
    bad |= {name for name, passed in alone.items() if passed is False}
    open_ = set(fit) - good
    if bounded_alone:
        open_ &= {name for group in measured for name in group}
    open_ |= set(alone) - set(fit)
    return Accepted(
        judged=tuple(judged),
        good=in_order(set(alone) - bad - open_),
        bad=in_order(bad),
        unknown=in_order(open_ - bad),
        together=together,
        next=following,
    )


def _groups(nodes, measured):
    """(good, bad, together, next) of nodes that passed alone, as Accepted has them.

    `measured`: {group: whether it passed}.
    """
    known = {group: passed for group, passed in measured.items() if group <= {*nodes}}
    good = frozenset(name for group, passed in known.items() if passed for name in group)
    failed = [group for group, passed in known.items() if not passed]
    bad = set()
    for name in nodes:
        own = [group for group in failed if group - good == {name}]
        if own and frozenset.intersection(*own) == {name}:
            bad.add(name)
    suspects = [name for name in nodes if name not in good | bad]
    names = [name for name in nodes if name in good]
    if not known:
        following = [nodes[at : at + 2] for at in range(0, len(nodes) - 1, 2)]
        following += [(nodes[0], nodes[-1])] if len(nodes) % 2 and len(nodes) > 1 else []
    elif suspects:
        # Each beside another good node, so that the pairs may be measured at the same time.
        turned = [(name, names[at:] + names[:at]) for at, name in enumerate(suspects)]
        pairs = [[(one, name) for one in good_ones] for name, good_ones in turned]
        fresh = ((pair for pair in of_one if frozenset(pair) not in known) for of_one in pairs)
        following = [pair for pair in (next(of_one, None) for of_one in fresh) if pair]
    else:
        following = [tuple(names)] if len(names) > 2 and good not in known else []
    together = tuple(sorted(in_order(group) for group in failed if group <= good))
    return set(names), bad, together, tuple(map(in_order, following))


def write(accepted: Accepted, folder: Path) -> None:
    """Write the lists of nodes that pass and that fail, as --nodelist and --exclude take them."""
    for name, nodes in ((PASS, accepted.good), (FAIL, accepted.bad)):
        with atomic_write(folder / name) as part:
            part.write_text(networks.compact_hosts(nodes) + "\n", "utf-8")


def next_lines(groups: Iterable[Group]) -> list[str]:
    """The lines of a config that measure groups, for a block of each size.

    >>> next_lines([("n1", "n2"), ("n3", "n4")])
    ['nodes: 2', 'node: ["n[1-2]", "n[3-4]"]']
    """
    by_size: dict[int, list[str]] = {}
    for group in groups:
        by_size.setdefault(len(group), []).append(f'"{networks.compact_hosts(group)}"')
    return [
        line
        for size, names in sorted(by_size.items())
        for line in (f"nodes: {size}", f"node: [{', '.join(names)}]")
    ]


def values(accepted: Accepted) -> dict[str, Any]:
    """What is known as plain values, for JSON; numbers that are not known are None."""
    return {
        "passed": list(accepted.good),
        "failed": list(accepted.bad),
        "unknown": list(accepted.unknown),
        "ranking": [
            {
                "nodes": list(one.nodes),
                "passed": one.passed if one.is_bounded else None,
                "bounded": one.is_bounded,
                "ratio": one.ratio,
                "slowest": one.slowest or None,
                "failures": list(one.failures),
                "missing": list(one.missing),
            }
            for one in accepted.judged
        ],
        "fail_together": list(map(list, accepted.together)),
        "next": list(map(list, accepted.next)),
    }


def page(accepted: Accepted, folder: Path) -> Page:
    """The Page of what is known: ranking, failures, lists and the next groups."""
    sections = [Section("Ranking", (), _ranking(accepted.judged))]
    failures = [
        f"{one.name}: {sentence}"
        for one in accepted.judged
        for sentence in (*one.failures, *one.missing)
    ]
    failures += [
        f"{networks.compact_hosts(group)} fails together, while each of its nodes passes with "
        "others: expected a fault of the network between them, or of runs of that size"
        for group in accepted.together
    ]
    if failures:
        sections.append(Section("What fails or is missing", tuple(failures)))
    excluded = networks.compact_hosts(accepted.bad)
    lists = [f"{folder / PASS}: {networks.compact_hosts(accepted.good) or 'none'}"]
    lists.append(f"{folder / FAIL}: {excluded or 'none'}")
    if accepted.unknown:
        lists.append(f"not known yet: {networks.compact_hosts(accepted.unknown)}")
    if excluded:
        lists.append(f'in site.yaml, under job: extra: "--exclude={excluded}"')
    sections.append(Section("Lists", tuple(lists)))
    good, bad, unknown = (len(g) for g in (accepted.good, accepted.bad, accepted.unknown))
    return Page(
        title="Acceptance of nodes",
        lead=f"{phrases.counted(good, 'node')} passed, {bad} failed, {unknown} not known.",
        sections=tuple(sections),
        kind="good" if accepted.all_passed else "bad",
    )


def _ranking(judged):
    words = {True: ("pass", "good"), False: ("FAIL", "bad"), None: ("not measured", "open")}
    rows = [
        [
            one.name,
            Cell(*words[one.passed] if one.is_bounded else ("no bound", "open")),
            "-" if one.ratio is None else f"{one.ratio:.3f}",
            one.slowest or "-",
        ]
        for one in judged
    ]
    return Table(("node", "outcome", "lowest ratio to the median", "of"), rows, right=(2,))
