"""Whether the nodes of a site differ in speed, and which of them is slower than the others.

- Logarithms of throughput of runs on one node are y = mu_c + b_n + e: mu of the condition in one
  session (so that no node answers for drift between sessions), b of the node, e the scatter of
  repeats, the same on all nodes. Nodes of a site with equal devices are one group. Left out are
  runs on several nodes, whose throughput is that of the slowest, and runs beside busy neighbours;
  but a node that has no others is compared by these, as it may be slow for what else runs on it.
- Variance components: b and e are taken as normal. With the conditions projected out, the sums of
  squares along the eigenvectors of the nodes' matrix are independent, and that of eigenvalue l is
  chi-squared times var(e) + l var(b). Their mean, each so weighed, over the residual mean square
  has the F distribution, for unbalanced data too. That gives the test of no difference, and an
  exact interval of var(b) / var(e) (A. Wald, Ann. Math. Stat. 11, 1940, 96-100; J. F. Seely and
  Y. El-Bassiouni, Ann. Stat. 11, 1983, 197-201). The interval of `node_sd` is that one at the
  residual variance that was found. The estimate is where that F is 1: for balanced data the one of
  the analysis of variance. The interval of `scatter` is the chi-squared one.
- A node is compared with the mean of the middle half of the others by least squares: a one-sided
  t test that it is slower by more than the margin. So one odd node, fast or slow, does not make
  others look slow. p are adjusted for the number of nodes of the study (Holm): fair nodes are named
  in at most 5 % of studies.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from dlbench.analysis import base_flags, estimates, judge
from dlbench.log.event_fields import SUCCEEDED
from dlbench.machine import hardware
from dlbench.study.config import Study
from dlbench.study.runs import CONDITION
from dlbench.tables import cells
from dlbench.tables.cells import Row

SLOWER, NOT_SHOWN = judge.SLOWER, "not shown"
GROUP = ("site", "device_kind", "device_model")
# In which only the node differs.
BLOCK = (*(name for name in CONDITION if name != "node"), *base_flags.FACTS, "session")
MIN_EIGENVALUE = 1e-9  # of an eigenvalue; less is rounding
TAIL = (1 - estimates.CONFIDENCE) / 2


@dataclass(frozen=True)
class Effects:
    """What the nodes of one group are like.

    Attributes:
        nodes: their names; runs: how many each has.
        differences: of each from the others; of its runs and theirs.
        node_sd: standard deviation of the nodes' logarithms, with its 95 % interval.
        scatter: that of the logarithms of repeats on one node, with its interval.
        p_differ: that all nodes are alike.
    """

    nodes: list[str]
    runs: list[int]
    differences: list[estimates.Difference]
    node_sd: estimates.Estimate
    scatter: estimates.Estimate
    p_differ: float


def rows(study: Study, runs: Iterable[Row]) -> list[Row]:
    """The table of nodes, by rows of the runs table; the slowest of each group first.

    No row of a group of which no two nodes have a condition in common, or no node two runs.
    """
    margin = study.equivalence_margin
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in runs:
        if _is_usable(row):
            groups.setdefault(tuple(row.get(name) for name in GROUP), []).append(row)
    groups = {key: _compared(group) for key, group in groups.items()}
    all_effects = {key: effects(group) for key, group in groups.items()}
    compared = {key: of_nodes for key, of_nodes in all_effects.items() if of_nodes}
    differences = [one for of_nodes in compared.values() for one in of_nodes.differences]
    judged = iter(judge.judge(differences, margin, one_sided=True))
    table: list[Row] = []
    for key, of_nodes in compared.items():
        shared = {"study": study.name, **dict(zip(GROUP, key, strict=True)), "margin": margin}
        shared |= of_nodes.node_sd.columns("node_sd") | of_nodes.scatter.columns("scatter")
        shared["p_differ"] = of_nodes.p_differ
        disturbed, group_rows = _disturbed(groups[key]), []
        for name, count in zip(of_nodes.nodes, of_nodes.runs, strict=True):
            one = next(judged)
            row = shared | {"node": name, "runs": count} | one.difference.ratio.columns("ratio")
            row["disturbed"] = name in disturbed
            row["p_slower"] = None if np.isnan(one.p_below) else one.p_below
            row["verdict"] = _verdict(row["p_slower"])
            group_rows.append(row)
        table += sorted(group_rows, key=lambda row: row["ratio"])
    return table


def effects(runs: Sequence[Row]) -> Effects | None:
    """The Effects of the nodes of some runs; None where no two nodes can be compared.

    `runs`: rows of the runs table, all of one group and on one node each.
    """
    names = sorted({_node(row) for row in runs})
    if len(names) < 2:
        return None
    blocks = {key: number for number, key in enumerate(dict.fromkeys(map(_block, runs)))}
    of_block = np.array([blocks[_block(row)] for row in runs])
    on_node = np.array([[_node(row) == name for name in names] for row in runs], dtype=float)
    logs = np.log([row["images_per_second"] for row in runs])
    residuals, projected = _without_means(logs, of_block), _without_means(on_node, of_block)
    matrix, sums = projected.T @ projected, projected.T @ residuals
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[values > MIN_EIGENVALUE], vectors[:, values > MIN_EIGENVALUE]
    freedom = len(runs) - len(blocks) - len(values)
    if not len(values) or freedom < 1:
        return None
    squares = (vectors.T @ sums) ** 2 / values
    error = max((residuals @ residuals - squares.sum()) / freedom, estimates.RESOLUTION**2)
    inverse = vectors / values @ vectors.T
    share_conditions = abs(np.eye(len(names)) - inverse @ matrix) > MIN_EIGENVALUE
    fit = _Fit(inverse @ sums, inverse * error, freedom)
    counts = on_node.sum(axis=0).astype(int).tolist()
    # What F is at the estimate of the ratio of variances, and at the ends of its interval.
    levels = (1.0, *special.fdtri(len(values), freedom, [1 - TAIL, TAIL]))
    between = [_variance_ratio(squares / error, values, level) for level in levels]
    within = freedom / special.chdtri(freedom, [TAIL, 1 - TAIL])
    return Effects(
        nodes=names,
        runs=counts,
        differences=[_of_node(fit, n, share_conditions[n], counts) for n in range(len(names))],
        node_sd=_sd(error, between, len(runs)),
        scatter=_sd(error, [1.0, *within], len(runs)),
        p_differ=float(special.fdtrc(len(values), freedom, squares.mean() / error)),
    )


@dataclass(frozen=True)
class _Fit:
    """Least squares: the nodes' effects, their covariances, and the residual degrees of freedom."""

    effects: np.ndarray
    covariances: np.ndarray
    freedom: int


def _of_node(fit, number, linked, counts):
    """The Difference of a node from the others; it has no error where there are none.

    `linked`: of each node, whether it shares conditions with this one.
    """
    others = np.flatnonzero(linked)
    others = others[others != number]
    if not len(others):
        return estimates.Difference(0.0, np.nan, np.nan, np.nan, (counts[number], 0))
    middle = _middle(others[np.argsort(fit.effects[others], kind="stable")])
    weights = np.zeros(len(counts))
    weights[middle] = -1 / len(middle)
    weights[number] = 1.0
    mean = float(weights @ fit.effects)
    error = float(np.sqrt(weights @ fit.covariances @ weights))
    # The scatter is that of all nodes, so that the others need not have as many runs.
    runs = counts[number], max(judge.MIN_RUNS, sum(counts[other] for other in others))
    return estimates.Difference(mean, error, fit.freedom, np.nan, runs)


def _middle(others):
    """Of nodes, the slowest first, the middle half; of two the slower, as either may be odd.

    >>> [_middle(list(range(n))) for n in (1, 2, 3, 4, 7)]
    [[0], [0], [1], [1, 2], [2, 3, 4]]
    """
    ends = (len(others) + 1) // 4
    return others[:1] if len(others) == 2 else others[ends : len(others) - ends]


def _variance_ratio(squares, values, level):
    """The ratio of the variances, of nodes over repeats, at which F is `level`; 0 if below.

    Args:
        squares: along the eigenvectors, over the residual mean square.
        values: the eigenvalues.
    """

    def f_value(ratio):
        return np.mean(squares / (1 + ratio * values))

    if f_value(0.0) <= level:
        return 0.0
    low, high = 0.0, float(np.mean(squares / values) / level)  # above which it is surely less
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if f_value(middle) > level else (low, middle)
    return high


def _sd(error, ratios, runs):
    """The Estimate of a standard deviation whose square is `error` times each of the ratios."""
    return estimates.Estimate(*np.sqrt(error * np.array(ratios)).tolist(), runs)


def _is_usable(row):
    """Whether a run is used: it was on one node, completed, and was timed by our clock."""
    return (
        row.get("status") in SUCCEEDED
        and row.get("nodes") == 1
        and _node(row)
        and row.get("timing_source") == cells.MEASURED
        and (row.get("images_per_second") or 0) > 0
    )


def _compared(runs):
    """The undisturbed runs; of a node that has none, all its runs."""
    quiet = {_node(row) for row in runs if not base_flags.is_disturbed(row)}
    return [row for row in runs if _node(row) not in quiet or not base_flags.is_disturbed(row)]


def _disturbed(runs):
    """The nodes all of whose runs others disturbed."""
    return {_node(row) for row in runs if base_flags.is_disturbed(row)}


def _node(row):
    """The name of a run's node: the one that it was sent to, or else the machine's own."""
    name = row.get("node") or row.get("host")
    return name and hardware.short_host(name)


def _block(row):
    return tuple(row.get(name) for name in BLOCK)


def _without_means(values, of_block):
    """Values less their means over each block."""
    counts = np.bincount(of_block)
    sums = np.zeros((len(counts), *values.shape[1:]))
    np.add.at(sums, of_block, values)
    means = sums / counts.reshape(-1, *[1] * (values.ndim - 1))
    return values - means[of_block]


def _verdict(p_slower):
    if p_slower is None:
        return judge.TOO_FEW_RUNS
    return SLOWER if p_slower < judge.ALPHA else NOT_SHOWN
