"""Accept the nodes of a machine: from the tables of a study and a site's bounds to lists of nodes.

- Runs and baselines of one node are that node's; those of several, whose `node` lists them, are of
  that group. Names are without their domain.
- A bound is about each node, or group of one size, if it matches a result of some of them. It fails
  if the geometric mean is outside of it, or a run ended without result. A node without such a
  result is not measured, which is neither pass nor fail.
- A node passes if it keeps every bound about nodes. A group that fails is named: one of its nodes
  or the network may be why.
- The ranking needs no bounds: of each condition the mean of a node over the median of all nodes,
  and of each node the lowest of these ratios.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.analysis import bounds, campaigns, estimates
from dlbench.analysis.campaigns import ITEM_RATE, JOINABLE, Measured
from dlbench.baselines import rounds
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
OF_RUNS = tuple(name for name in JOINABLE if name != "node")
# What chooses a baseline, as columns of their table; none that says where it was measured.
OF_BASELINES = (
    *("measure", "framework_version", "dataset", "device_kind", "device_model", "devices"),
    *(name for name in rounds.CONDITIONS if name != "node"),
    "size_bytes",
)
# Of a baseline `value` is in the unit of its row.
BASELINE_UNITS: dict[str, str | None] = {"value": None, "time_s": "s"}


def bounded_by(match: dict[str, Any], of_runs: bounds.Bounded = bounds.RUNS) -> bounds.Bounded:
    """What an entry of a file of bounds is about: baselines if it has a `measure`, else runs."""
    if "measure" not in match:
        return of_runs
    return bounds.Bounded(OF_BASELINES, tuple(BASELINE_UNITS), _unit_of_baseline)


def _unit_of_baseline(metric):
    if metric not in BASELINE_UNITS:
        raise Error(f"no metric {metric!r} of baselines; there are: {', '.join(BASELINE_UNITS)}")
    return BASELINE_UNITS[metric]


def of_baselines(rows: Iterable[Row]) -> list[Measured]:
    """Rows of the table of baselines as what `judge` takes, with unit and reason as facts."""
    made = []
    for row in rows:
        reason, numbers = row.get("unknown") or "", {n: row.get(n) for n in BASELINE_UNITS}
        lacking = FAILED if reason.startswith(NOT_MEASURED) else SKIPPED
        status = lacking if row.get("value") is None else "ok"
        fields = {name: row.get(name) for name in (*OF_BASELINES, "node")}
        facts = {"host": row.get("host"), "unit": row.get("unit"), "reason": reason}
        known = {name: value for name, value in numbers.items() if value is not None}
        made.append(Measured(row["measure"], fields, status, known, facts))
    return made


def _is_baseline(run):
    return "measure" in run.fields


def _is_failed_baseline(run):
    """Whether only the measure of a baseline is known, and where it failed."""
    return run.status == FAILED and _is_baseline(run)


def _number(run, metric):
    """A number above 0 of one that completed; None if there is none."""
    value = run.numbers.get(metric) if run.finished else None
    return float(value) if value and math.isfinite(value) and value > 0 else None


def _label(run):
    """A few words for what was measured."""
    names = ("measure", *tagged(ALWAYS), "strategy", "precision")
    words = [str(run.fields[name]) for name in names if run.fields.get(name) is not None]
    size = run.fields.get("size_bytes")
    return " ".join([*words, f"{size:g} B"] if size else words)


def _nodes(run):
    """The nodes, in order, on which it was measured; () if it does not say."""
    host = run.facts.get("host") if run.fields.get("nodes") == 1 else None
    node = run.fields.get("node")
    names = networks.expand_hosts(node) if node else filter(None, [host])
    return _in_order(map(hardware.short_host, names))


def _in_order(names):
    """Names of nodes in the order of their numbers, each once."""
    return tuple(networks.expand_hosts(networks.compact_hosts(names)))


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
    wanted: Sequence[bounds.Bound], results: Iterable[Measured], expected: Iterable[str] = ()
) -> list[Judged]:
    """The nodes and groups with what they keep, those that fail first, then the slowest.

    Args:
        results: runs, and baselines as of_baselines has them. Those of unknown nodes are left out.
        expected: nodes that must have results of their own, as those of groups must.

    Raises Error: a bound matches nothing, or results of several conditions, or another unit.
    """
    placed = [(nodes, one) for one in results if (nodes := _nodes(one))]
    names = [*map(hardware.short_host, expected), *(name for nodes, _ in placed for name in nodes)]
    by_nodes: dict[Group, list[Measured]] = {(name,): [] for name in _in_order(names)}
    for nodes, one in placed:
        by_nodes.setdefault(nodes, []).append(one)
    outcomes = bounds.made_of_all(lambda bound: _outcomes(bound, by_nodes), wanted)
    lowest = _lowest_ratios(by_nodes)
    judged = []
    for nodes in by_nodes:
        said: dict[str, list[str]] = {FAILED: [], MISSING: [], KEPT: []}
        for kind, sentence in (of_bound[nodes] for of_bound in outcomes if nodes in of_bound):
            said[kind].append(sentence)
        failures, missing, kept = said.values()
        ratio = lowest.get(nodes, (None, ""))
        judged.append(Judged(nodes, tuple(failures), tuple(missing), len(kept), *ratio))
    verdicts = [False, None, True]
    return sorted(
        judged,
        key=lambda one: (
            len(one.nodes), verdicts.index(one.passed), one.ratio or math.inf, one.nodes
        ),
    )  # fmt: skip


def _outcomes(bound, by_nodes):
    """{nodes: (FAILED, MISSING or KEPT, a sentence)} of the nodes, or groups of some size, that
    a bound is about. Raises Error: it cannot be checked.
    """
    of_bound = {
        nodes: [one for one in own if _matches(one, bound, len(nodes))]
        for nodes, own in by_nodes.items()
    }
    if mistake := _mistake(bound, [one for own in of_bound.values() for one in own], by_nodes):
        raise Error(f"{bound.where}{mistake}")
    sizes = {len(nodes) for nodes, own in of_bound.items() if own}
    return {nodes: _outcome(bound, own) for nodes, own in of_bound.items() if len(nodes) in sizes}


def _matches(run, bound, size):
    for name, wanted in bound.match.items():
        value = run.fields.get(name, run.facts.get(name))
        if name == "nodes" and wanted == SEVERAL:
            if size < 2:
                return False
        elif value is None and _is_failed_baseline(run):
            continue  # not known, since nothing was measured
        elif not bounds.is_equal(value, wanted):
            return False
    return ("measure" in bound.match) == _is_baseline(run)


def _mistake(bound, matched, by_nodes):
    """Why a bound cannot be checked; "" if it can, or is of groups before any was measured."""
    size, of_baselines = bound.match.get("nodes", 1), "measure" in bound.match
    groups = (len(nodes) for nodes in by_nodes if len(nodes) > 1)
    if not matched and (size == 1 or any(size in (SEVERAL, count) for count in groups)):
        every = (one for own in by_nodes.values() for one in own)
        known = {_label(one) for one in every if _is_baseline(one) == of_baselines}
        return (
            f": matches no {'baseline' if of_baselines else 'run'}; expected one with "
            f"{', '.join(f'{name} {value}' for name, value in bound.match.items())}, found: "
            f"{'; '.join(sorted(known)[:10]) or 'none'}"
        )
    matched = [one for one in matched if not _is_failed_baseline(one)]
    any_size = ("nodes", "devices") if size == SEVERAL else ()  # on groups of any
    varied = [
        name
        for name in (OF_BASELINES if of_baselines else OF_RUNS)
        if name not in any_size and len({str(one.fields.get(name)) for one in matched}) > 1
    ]
    if varied:
        differing = ", ".join(varied)
        return f": matches several conditions; say under match which, they differ in {differing}"
    units = {unit for one in matched if (unit := one.facts.get("unit")) and bound.metric == "value"}
    if units and units != {bound.unit}:
        return f".unit: found {', '.join(sorted(units))}, and not {bound.unit!r}"
    return ""


def _outcome(bound, own):
    """(FAILED, MISSING or KEPT, a sentence) of a bound and the results of one node or group."""
    subject = _label(own[0]) if own else " ".join(map(str, bound.match.values()))
    failed = Counter(one.status for one in own if one.status not in (*SUCCEEDED, SKIPPED))
    if failed:
        ends = ", ".join(f"{count} {status}" for status, count in sorted(failed.items()))
        reasons = (one.facts["reason"] for one in own if _is_failed_baseline(one))
        why = next(reasons, "see their messages")
        expected = phrases.counted(len(own), "result")
        return FAILED, f"{subject}: expected {expected}, found {ends}; {why}"
    values = [value for one in own if (value := _number(one, bound.metric))]
    if not values:
        reasons = filter(None, (one.facts.get("reason") for one in own))
        reason = next(reasons, "no result")
        return MISSING, f"{subject}: not measured ({reason})"
    mean = estimates.mean(values)
    outcome = bounds.Outcome(bound, mean, {}, sum(one.disturbed for one in own))
    if outcome.passed:
        return KEPT, ""
    least, most = bound.limits
    at = f"at least {number(least)}" if mean.value < least else f"at most {number(most)}"
    found = f"found {number(mean.value)} ({outcome.message})"
    return FAILED, f"{subject}: expected {at} {bound.unit}, {found}"


def _lowest_ratios(by_nodes):
    """{nodes: (the lowest ratio to the median of all of their size, what it is of)}."""
    values: dict[Any, dict[Group, list[float]]] = {}
    labels = {}
    for nodes, own in by_nodes.items():
        for one in own:
            rate, names = ("value", OF_BASELINES) if _is_baseline(one) else (ITEM_RATE, OF_RUNS)
            if value := _number(one, rate):
                key = len(nodes), rate, tuple(str(one.fields.get(name)) for name in names)
                values.setdefault(key, {}).setdefault(nodes, []).append(value)
                labels[key] = _label(one)
    lowest: dict[Group, tuple[float, str]] = {}
    for key, of_nodes in values.items():
        means = {nodes: estimates.mean(own).value for nodes, own in of_nodes.items()}
        median = statistics.median(means.values())
        for nodes, value in means.items() if len(means) > 1 else ():
            found = value / median, labels[key]
            lowest[nodes] = min(found, lowest.get(nodes, found))
    return lowest


def read_bounds(path: str | Path, folder: Path) -> list[bounds.Bound]:
    """The Bounds in a file, also on metrics that the runs in a results folder name."""
    runs = folder / "tables/runs.parquet"
    bounded = bounds.Bounded.of(campaigns.read(runs)) if runs.is_file() else bounds.RUNS
    return bounds.read(path, lambda match: bounded_by(match, bounded))


def read(folder: Path) -> list[Measured]:
    """What the tables of runs and of baselines of a results folder have.

    Raises Error: it has neither.
    """
    runs, baselines = folder / "tables/runs.parquet", folder / "tables/baselines.parquet"
    results: list[Measured] = []
    if baselines.is_file():
        rows = parquet_files.read(baselines, BASELINES, earlier=True).to_pylist()
        results += of_baselines(rows)
    if runs.is_file():
        results += campaigns.read(runs).runs
    if not any(map(_nodes, results)):
        raise Error(
            f"{folder}: expected runs or baselines of named nodes in {runs} or {baselines}, found "
            "none: start the workflow with studies/gpu_acceptance first"
        )
    return results


def all_passed(judged: Iterable[Judged]) -> bool:
    """Whether no node and no group with bounds has failed or is missing."""
    return all(one.passed for one in judged if one.is_bounded)


def write(judged: Sequence[Judged], folder: Path) -> None:
    """Write the lists of nodes that pass and that fail, as --nodelist and --exclude take them."""
    for name, passed in ((PASS, True), (FAIL, False)):
        with atomic_write(folder / name) as part:
            part.write_text(networks.compact_hosts(_alone(judged, passed)) + "\n", "utf-8")


def _alone(judged, passed):
    """The nodes with bounds that passed, failed, or, None, were not measured."""
    named = (one for one in judged if len(one.nodes) == 1 and one.is_bounded)
    return _in_order(one.name for one in named if one.passed is passed)


def values(judged: Sequence[Judged]) -> dict[str, Any]:
    """What is known as plain values, for JSON; numbers that are not known are None."""
    names = (("passed", True), ("failed", False), ("unknown", None))
    return {
        **{name: list(_alone(judged, passed)) for name, passed in names},
        "ranking": [
            {**vars(one), "passed": one.passed, "bounded": one.is_bounded} for one in judged
        ],
    }


def page(judged: Sequence[Judged], folder: Path) -> Page:
    """The Page of what is known: ranking, failures and lists."""
    words = {True: ("pass", "good"), False: ("FAIL", "bad"), None: ("not measured", "open")}
    ranking: list[list[str | Cell]] = [
        [
            one.name,
            Cell(*words[one.passed] if one.is_bounded else ("no bound", "open")),
            "-" if one.ratio is None else f"{one.ratio:.3f}",
            one.slowest or "-",
        ]
        for one in judged
    ]
    headings = ("node", "outcome", "lowest ratio to the median", "of")
    sections = [Section("Ranking", (), Table(headings, ranking, right=(2,)))]
    if failures := [
        f"{one.name}: {sentence}" for one in judged for sentence in (*one.failures, *one.missing)
    ]:
        sections.append(Section("What fails or is missing", tuple(failures)))
    nodes = [_alone(judged, passed) for passed in (True, False, None)]
    good, bad, unknown = map(networks.compact_hosts, nodes)
    lists = [f"{folder / PASS}: {good or 'none'}", f"{folder / FAIL}: {bad or 'none'}"]
    lists += [f"not known yet: {unknown}"] if unknown else []
    lists += [f'in site.yaml, under job: extra: "--exclude={bad}"'] if bad else []
    sections.append(Section("Lists", tuple(lists)))
    counts = phrases.counted(len(nodes[0]), "node"), len(nodes[1]), len(nodes[2])
    return Page(
        title="Acceptance of nodes",
        lead="{} passed, {} failed, {} not known.".format(*counts),
        sections=tuple(sections),
        kind="good" if all_passed(judged) else "bad",
    )
