"""Accept the nodes of a machine: from the tables of a study and a site's bounds to lists of nodes.

First each node alone, then pairs of those that passed, then all of them together. Nodes of a pair
that fails are measured with others that passed. What is to be measured next follows from what is in
the tables, so the same command is repeated after each round.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.analysis import acceptance, bounds, campaigns, node_results
from dlbench.common import host_lists, phrases
from dlbench.common.files import atomic_write
from dlbench.machine import hardware
from dlbench.pages.page import Cell, Page, Section, Table
from dlbench.tables import parquet_files
from dlbench.tables.table_columns import BASELINES

PASS, FAIL = "nodes.pass", "nodes.fail"


@dataclass(frozen=True)
class Groups:
    """What groups of nodes say.

    Attributes:
        good: nodes that were in a group that passed.
        bad: nodes that are all that their failed groups have in common, all others being good.
        together: groups that failed though each of their nodes passed in another.
        next: what to measure next.
    """

    good: node_results.Group
    bad: node_results.Group
    together: tuple[node_results.Group, ...]
    next: tuple[node_results.Group, ...]


@dataclass(frozen=True)
class Accepted:
    """What is known of the nodes.

    Attributes:
        judged: nodes and groups, as acceptance.judge has them.
        good: nodes that keep their bounds and are not the fault of a group.
        bad: nodes that do not, or are.
        unknown: nodes of which something was not measured, or no group tells.
    """

    judged: tuple[acceptance.Judged, ...]
    good: node_results.Group
    bad: node_results.Group
    unknown: node_results.Group
    groups: Groups

    @property
    def all_passed(self) -> bool:
        """Whether no node and no group has failed or is missing."""
        groups = [one for one in self.judged if len(one.nodes) > 1]
        return not self.bad and not self.unknown and all(one.passed for one in groups)


def read_bounds(path: str | Path, folder: Path) -> list[bounds.Bound]:
    """The Bounds in a file, also on metrics that the runs in a results folder name."""
    runs = folder / "tables/runs.parquet"
    of_runs = bounds.Bounded.of(campaigns.read(runs)) if runs.is_file() else bounds.RUNS
    return bounds.read(path, lambda match: node_results.bounded_by(match, of_runs))


def read(folder: Path) -> list[node_results.Result]:
    """The Results in a results folder.

    Args:
        folder: has tables/runs.parquet, tables/baselines.parquet or both.

    Raises:
        Error: it has neither.
    """
    runs, baselines = folder / "tables/runs.parquet", folder / "tables/baselines.parquet"
    results: list[node_results.Result] = []
    if baselines.is_file():
        rows = parquet_files.read(baselines, BASELINES, earlier=True).to_pylist()
        results += node_results.of_baselines(rows)
    if runs.is_file():
        results += node_results.of_runs(campaigns.read(runs).runs)
    if not results:
        raise Error(
            f"{folder}: expected runs or baselines of named nodes in {runs} or {baselines}, found "
            "none: start the workflow with studies/gpu_acceptance first"
        )
    return results


def accept(
    results: Sequence[node_results.Result],
    wanted: Sequence[bounds.Bound],
    expected: Iterable[str] = (),
) -> Accepted:
    """The nodes that pass and fail, and what to measure next.

    Args:
        expected: nodes that must have been measured alone.

    Raises:
        Error: a bound cannot be checked.
    """
    names = [hardware.short_host(name) for name in expected]
    # Also nodes of which there are groups alone.
    names += [name for one in results for name in one.nodes]
    judged = acceptance.judge(wanted, results, node_results.in_order(names))
    alone = {one.nodes[0]: one.passed for one in judged if len(one.nodes) == 1}
    bounded_alone = any(one.kept or one.failures for one in judged if len(one.nodes) == 1)
    # In a site's file there may be bounds of groups alone.
    fit = [name for name in alone if alone[name] or not bounded_alone]
    measured = {
        frozenset(one.nodes): one.passed
        for one in judged
        if len(one.nodes) > 1 and one.passed is not None
    }
    groups = _groups(node_results.in_order(fit), measured)
    in_groups = {name for group in measured for name in group}
    bad = {name for name, passed in alone.items() if passed is False} | set(groups.bad)
    open_ = {name for name in fit if name in in_groups and name not in groups.good}
    open_ |= {name for name in alone if name not in fit}
    if not bounded_alone:
        open_ |= set(fit) - set(groups.good)
    return Accepted(
        judged=tuple(judged),
        good=node_results.in_order(set(alone) - bad - open_),
        bad=node_results.in_order(bad),
        unknown=node_results.in_order(open_ - bad),
        groups=groups,
    )


def _groups(nodes, measured):
    """The Groups of nodes that passed alone.

    Args:
        measured: {group: whether it passed}.
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
    return Groups(
        good=tuple(names),
        bad=node_results.in_order(bad),
        together=tuple(sorted(node_results.in_order(g) for g in failed if g <= good)),
        next=tuple(map(node_results.in_order, following)),
    )


def write(accepted: Accepted, folder: Path) -> None:
    """Write the lists of nodes that pass and that fail, as --nodelist and --exclude take them."""
    for name, nodes in ((PASS, accepted.good), (FAIL, accepted.bad)):
        with atomic_write(folder / name) as part:
            part.write_text(host_lists.compact_hosts(nodes) + "\n", "utf-8")


def next_lines(groups: Iterable[node_results.Group]) -> list[str]:
    """The lines of a config that measure groups, for a block of each size.

    >>> next_lines([("n1", "n2"), ("n3", "n4")])
    ['nodes: 2', 'node: ["n[1-2]", "n[3-4]"]']
    """
    by_size: dict[int, list[str]] = {}
    for group in groups:
        by_size.setdefault(len(group), []).append(f'"{host_lists.compact_hosts(group)}"')
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
        "fail_together": list(map(list, accepted.groups.together)),
        "next": list(map(list, accepted.groups.next)),
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
        f"{host_lists.compact_hosts(group)} fails together, while each of its nodes passes with "
        "others: expected a fault of the network between them, or of runs of that size"
        for group in accepted.groups.together
    ]
    if failures:
        sections.append(Section("What fails or is missing", tuple(failures)))
    excluded = host_lists.compact_hosts(accepted.bad)
    lists = [f"{folder / PASS}: {host_lists.compact_hosts(accepted.good) or 'none'}"]
    lists.append(f"{folder / FAIL}: {excluded or 'none'}")
    if accepted.unknown:
        lists.append(f"not known yet: {host_lists.compact_hosts(accepted.unknown)}")
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
