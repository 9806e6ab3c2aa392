"""Drift: how throughput changed from session to session, and comparisons across sessions.

- Logarithms of throughput, or of another metric, are y = mu_c + delta_s + scatter, for each device
  shape (nodes x devices per node) of its own: mu of the condition, delta of the session, nought in
  one of them. All conditions of a shape are taken to drift alike. Groups (condition, session) weigh
  by their runs.
- Drift is estimated from runs of the study and sentinels (conditions that a later session measured
  again), but for those that other processes on the machine disturbed.
  Sessions are comparable where conditions with MIN_RUNS runs in either lead from one to the
  other.
- Two sides of different sessions are compared as if of one: the drift of its shape moves the base
  to the sessions of the other side or, where that drift is unknown, the other side to those of the
  base. Where sentinels repeat the base, the moved base is what they measured.
- Everything is a linear combination sum k_g y_g of means of groups. Its variance is
  sum k_g^2 s_g^2 / n_g; its degrees of freedom are (sum v_g)^2 / sum (v_g^2 / (n_g - 1)) with
  v_g = k_g^2 s_g^2 / n_g (F. E. Satterthwaite, Biometrics Bulletin 2, 1946, 110-114; B. L. Welch,
  Biometrika 34, 1947, 28-35). A group of one run has the scatter pooled over its shape's groups.
- Sides that share sessions, but in unequal shares, are corrected, too, where the drift is known:
  sentinels that count as repeats of a base belong to the session of the new runs.
- TOST judges whether a drift is equivalent to none; only then may the two sides be compared.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np

from dlbench.analysis import base_flags, estimates, judge, measures
from dlbench.log.event_fields import SUCCEEDED
from dlbench.records import sessions
from dlbench.study.config import Study
from dlbench.study.runs import CONDITION, is_sentinel
from dlbench.tables import cells
from dlbench.tables.cells import PUBLISHED, Row
from dlbench.tables.metrics import THROUGHPUT, Metric

NO_DRIFT = "none"  # the verdict where drift is equivalent to none
CONDITION_KEYS = (*CONDITION, *base_flags.FACTS, "devices")  # what runs of one condition share
LAYOUT = ("nodes", "devices_per_node")
SHAPE = (*LAYOUT, "devices")  # the product, which alone is known of some imported runs
NEVER = datetime.min.replace(tzinfo=timezone.utc)


@dataclass(frozen=True)
class Sides:
    """Two sides that are compared.

    Attributes:
        difference: of their throughputs. If the sides differ in their sessions, or in the shares
            of these, and the drift is known, it is corrected for the drift and includes its
            uncertainty.
        apart: no session has runs of both.
        drift: what the difference is corrected for, of the same sign; None if it is not corrected.
        allowed: they share a session, or the drift is shown to be equivalent to none.
    """

    difference: estimates.Difference
    apart: bool = False
    drift: estimates.Difference | None = None
    allowed: bool = True

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags for the columns `base_flags` and `base_mismatch`."""
        return () if self.allowed else (base_flags.APART,)

    @property
    def columns(self) -> Row:
        """Columns of the tables of comparisons and of speedups."""
        drift = self.drift.ratio.columns("drift") if self.drift else {}
        return {"measured_apart": self.apart, **drift}

    @property
    def label(self) -> str:
        """As in `drift +0.3 % [-0.2, +0.9]`; "" if nothing is corrected for."""
        if self.drift is None:
            return ""
        ratio = self.drift.ratio
        mean, *ends = (f"{100 * (end - 1):+.1f}" for end in (ratio.value, ratio.low, ratio.high))
        return f"drift {mean} %" + ("" if np.isnan(ratio.low) else f" [{', '.join(ends)}]")


class Drift:
    """What is known of the drift between the sessions of some runs."""

    def __init__(
        self,
        rows: Sequence[Row],
        sentinels: Sequence[Row] = (),
        margin: float = 0.01,
        metric: Metric = THROUGHPUT,
    ):
        """
        Args:
            rows, sentinels: of the runs table; sentinels that count as repeats are in both.
            margin: of equivalence.
            metric: what drifts; its values are positive.
        """
        self._margin, self.metric = margin, metric
        groups: dict[tuple[Any, ...], list[Row]] = {}
        repeats = set(filter(is_sentinel, (row.get("run_id") or "" for row in rows)))
        sentinels = [row for row in sentinels if row.get("run_id") not in repeats]
        for row, is_own in (*((row, True) for row in rows), *((row, False) for row in sentinels)):
            if _is_measured(row, metric.column) and not base_flags.is_disturbed(row):
                key = (_values(row, CONDITION_KEYS), sessions.session_of(row), is_own)
                groups.setdefault(key, []).append(row)
        self._groups = {
            key: _Group(index, key[0], key[1], rows, metric.column)
            for index, (key, rows) in enumerate(groups.items())
        }
        by_shape: dict[tuple[Any, ...], list[_Group]] = {}
        for group in self._groups.values():
            by_shape.setdefault(_values(group.rows[0], SHAPE), []).append(group)
        self.shapes = {shape: _Shape(members) for shape, members in by_shape.items()}
        self._means = np.array([group.mean for group in self._groups.values()])

    def compare(self, a: Sequence[Row], b: Sequence[Row]) -> Sides:
        """A side and its base, corrected for the drift between their sessions.

        `a`, `b`: their rows of the runs table, each of one device shape; neither is empty.
        """
        values = ([row[self.metric.column] for row in side] for side in (a, b))
        measured = estimates.Difference.of(*values)
        if _by_session(a) == _by_session(b):
            return Sides(measured)
        apart, drift = sessions.measured_apart(a, b), self._between_sides(a, b)
        if drift is None:
            return Sides(measured, apart, allowed=not apart)
        plain = self._weights(self._side(a)) - self._weights(self._side(b))
        corrected, change = (self._difference(k, measured) for k in (plain - drift, drift))
        if min(measured.runs) < 2:
            corrected = dataclasses.replace(corrected, error=np.nan, freedom=np.nan)
        return Sides(corrected, apart, change, not apart or self.verdict(change) == NO_DRIFT)

    def _between_sides(self, a, b):
        """Coefficients of the drift from the sessions of b to those of a; None if unknown."""
        sides = self._side(a), self._side(b)
        if None in sides:
            return None
        for sign, fixed, moved in ((1, *sides), (-1, *reversed(sides))):
            shape = self.shapes[_values(next(iter(moved)).rows[0], SHAPE)]
            to = _shares(fixed)
            if shape.connects([*to, *_shares(moved)]):
                return sign * (self._moved(shape, moved, to) - self._weights(moved))
        return None

    def between(self, shape: "_Shape", earlier: Any, later: Any) -> estimates.Difference:
        """The later session's mean logarithm of throughput less the earlier one's, on one shape."""
        coefficients = np.zeros(len(self._groups))
        change = shape.deltas[shape.position[later]] - shape.deltas[shape.position[earlier]]
        coefficients[[group.index for group in shape.groups]] = change
        runs = tuple(shape.shared_runs(earlier, later))
        blank = estimates.Difference(np.nan, np.nan, np.nan, np.nan, runs)
        return self._difference(coefficients, blank)

    def verdict(self, drift: estimates.Difference) -> str:
        """The verdict on a drift: NO_DRIFT, undecided or the metric's, as faster or slower."""
        (judged,) = judge.judge([drift], self._margin, [self.metric], least_runs=0)
        return NO_DRIFT if judged.verdict == judge.EQUIVALENT else judged.verdict

    def _side(self, rows):
        """{group: its share of the side's runs}; None if a run is of no group."""
        side = {}
        for row in rows:
            group = self._groups.get((_values(row, CONDITION_KEYS), sessions.session_of(row), True))
            if group is None:
                return None
            side[group] = side.get(group, 0) + 1 / len(rows)
        return side

    def _weights(self, side):
        coefficients = np.zeros(len(self._groups))
        for group, share in side.items():
            coefficients[group.index] = share
        return coefficients

    def _moved(self, shape, side, to):
        """Coefficients of a side's mean as it would be in other sessions, {session: share}."""
        within = sum(share * shape.deltas[shape.position[session]] for session, share in to.items())
        for group, share in side.items():
            within = within + share * shape.mean_of(group.condition)
        coefficients = np.zeros(len(self._groups))
        coefficients[[group.index for group in shape.groups]] = within
        return coefficients

    def _difference(self, coefficients, template):
        """The Difference that is a linear combination of groups; its error is nan if unknown."""
        mean = float(coefficients @ self._means)
        difference = dataclasses.replace(template, mean=mean, error=np.nan, freedom=np.nan)
        groups = list(self._groups.values())
        used = [groups[index] for index in np.flatnonzero(abs(coefficients) > 1e-9)]
        if not all(group.freedom for group in used):
            return difference
        errors = np.array(
            [coefficients[g.index] ** 2 * g.variance / len(g.rows) for g in used] or [0.0]
        )
        errors = np.maximum(errors, estimates.RESOLUTION**2)
        spare = np.array([group.freedom for group in used] or [1])
        return dataclasses.replace(
            difference,
            error=float(np.sqrt(errors.sum())),
            freedom=float(errors.sum() ** 2 / np.sum(errors**2 / spare)),
        )


class _Group:
    """The runs of a condition in a session: those of the study, or sentinels.

    `freedom` of its `variance`; a group of one run gets both of its shape.
    """

    def __init__(self, index, condition, session, rows, column):
        self.index, self.condition, self.session, self.rows = index, condition, session, rows
        logs = np.log([row[column] for row in rows])
        self.mean, self.freedom = float(np.mean(logs)), len(rows) - 1
        self.variance = float(np.var(logs, ddof=1)) if self.freedom else np.nan


class _Shape:
    """The sessions of one device shape, with the least-squares estimates of their drift.

    Eliminating the conditions' means leaves L delta = R y, L the weighted Laplacian of sessions:
    L = sum_c (diag(n_c) - n_c n_c' / N_c), n_c the runs of a condition in each session, N_c in all.

    Attributes:
        deltas: of each session (`position` says where it is), coefficients over `groups`.
    """

    def __init__(self, groups):
        self.groups = groups
        self.position = {}
        for group in groups:
            self.position.setdefault(group.session, len(self.position))
        self._pool()
        self._counts = {}  # by condition, runs in each session
        for group in groups:
            counts = self._counts.setdefault(group.condition, np.zeros(len(self.position)))
            counts[self.position[group.session]] += len(group.rows)
        self._linked = [c for c, counts in self._counts.items() if np.count_nonzero(counts) > 1]
        size = len(self.position)
        laplacian, right = np.zeros((size, size)), np.zeros((size, len(groups)))
        for counts in map(self._counts.get, self._linked):
            laplacian += np.diag(counts) - np.outer(counts, counts) / counts.sum()
        for column, group in enumerate(groups):
            counts = self._counts[group.condition]
            if np.count_nonzero(counts) > 1:
                right[:, column] = -counts / counts.sum() * len(group.rows)
                right[self.position[group.session], column] += len(group.rows)
        self.deltas = np.linalg.pinv(laplacian, hermitian=True) @ right
        self._components = self._connected()

    def _pool(self):
        with_variance = [group for group in self.groups if group.freedom]
        freedom = sum(group.freedom for group in with_variance)
        for group in self.groups:
            if freedom and not group.freedom:
                group.variance = sum(g.variance * g.freedom for g in with_variance) / freedom
                group.freedom = freedom

    def _connected(self):
        """The connected component of each session; conditions with enough runs connect sessions."""
        components = np.arange(len(self.position))
        for counts in self._counts.values():
            (enough,) = np.nonzero(counts >= judge.MIN_RUNS)
            if len(enough) > 1:
                components[np.isin(components, components[enough])] = components[enough[0]]
        return components

    def connects(self, sessions):
        """Whether the drift between sessions is known."""
        if any(session not in self.position for session in sessions):
            return False
        return len({self._components[self.position[session]] for session in sessions}) == 1

    def mean_of(self, condition):
        """Coefficients over `groups` of mu of a condition."""
        counts = self._counts[condition]
        shares = counts / counts.sum()
        coefficients = -shares @ self.deltas
        for column, group in enumerate(self.groups):
            if group.condition == condition:
                coefficients[column] += len(group.rows) / counts.sum()
        return coefficients

    def shared(self, *two):
        """The conditions that two sessions have in common."""
        first, second = (self.position[session] for session in two)
        return [c for c in self._linked if self._counts[c][first] and self._counts[c][second]]

    def shared_runs(self, *two):
        """Of each of two sessions, the runs of the conditions that they share."""
        for session in two:
            yield int(sum(self._counts[c][self.position[session]] for c in self.shared(*two)))


def rows(
    study: Study,
    runs: Sequence[Row],
    sentinels: Sequence[Row] = (),
    named: measures.Named = measures.NONE,
) -> list[Row]:
    """Rows of the table of drift: pairs of sessions that share conditions, by device shape.

    They are of throughput, and of each metric that runs name and whose values are above 0.
    """
    every = [*runs, *sentinels]
    others = [m for m in named.metrics.values() if not measures.not_positive(every, m)]
    return [
        row
        for metric in (THROUGHPUT, *others)
        for drift in [Drift(runs, sentinels, study.equivalence_margin, metric)]
        for _, shape in sorted(drift.shapes.items(), key=lambda item: str(item[0]))
        for row in _rows(study, drift, shape)
    ]


def _rows(study, drift, shape):
    starts = _first_starts(shape)
    common = {name: shape.groups[0].rows[0].get(name) for name in ("site", "device_kind", *LAYOUT)}
    ordered = sorted(starts, key=lambda session: (starts[session] or NEVER, str(session)))
    for earlier, later in itertools.combinations(ordered, 2):
        conditions = shape.shared(earlier, later)
        if not conditions:
            continue
        change = drift.between(shape, earlier, later)
        verdict = drift.verdict(change)
        yield {
            "study": study.name,
            "metric": drift.metric.name,
            "unit": drift.metric.unit,
            **common,
            "earlier_session": _name(earlier),
            "later_session": _name(later),
            "earlier_started_at": starts[earlier],
            "later_started_at": starts[later],
            "earlier_runs": change.runs[0],
            "later_runs": change.runs[1],
            "conditions": len(conditions),
            **change.ratio.columns("ratio"),
            "margin": study.equivalence_margin,
            "verdict": verdict if shape.connects((earlier, later)) else judge.TOO_FEW_RUNS,
        }


def _first_starts(shape):
    """{session: when the first of its runs began, or None}."""
    starts = {}
    for group in shape.groups:
        dates = [row.get("started_at") for row in group.rows]
        dates = [date for date in (*dates, starts.get(group.session)) if date]
        starts[group.session] = min(dates, default=None)
    return starts


def _name(session):
    return session if isinstance(session, str) else None


def _by_session(rows):
    """{session: share of some runs}"""
    counts = Counter(map(sessions.session_of, rows))
    return {session: count / len(rows) for session, count in counts.items()}


def _shares(side):
    """{session: share of the runs} of {group: share of the runs}."""
    shares = {}
    for group, share in side.items():
        shares[group.session] = shares.get(group.session, 0) + share
    return shares


def _is_measured(row, column):
    value = row.get(column)
    return (
        row["status"] in SUCCEEDED
        and not cells.is_absent(value)
        and 0 < value < np.inf
        and row.get("timing_source") != PUBLISHED
    )


def _values(row, names):
    """Values of a row, None where absent; calls of cells.is_absent would take twice the time."""
    return tuple([v if (v := row.get(name)) == v else None for name in names])
