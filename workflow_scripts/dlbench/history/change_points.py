"""Changes of the level of one series: means of logarithms, one a session, in the order of dates.

- A session whose mean is beyond those of the two sessions before it and of the two after it by more
  than CLIP standard deviations is an outlier; it counts as if it lay just so far off.
- Candidates are those of the segmentation with the least squares and penalties, which PELT finds
  (R. Killick, P. Fearnhead, I. A. Eckley, J. Am. Stat. Assoc. 107, 2012, 1590-1598). A test holds
  it against ruptures, which has no wheel for each Python that we support. The penalty is
  PENALTY + 2 log(sessions) in units of the variance, which is that of differences of neighbours and
  so knows no steps. Of noise alone, some 3 to 8 % of series get a candidate: it only screens.
- A candidate that lies where an event (a change of driver, firmware, image) explains the series as
  well is moved there. Each other event is a candidate, too, where its own test accepts it.
- Each candidate must then be confirmed by a test between the two segments beside it: weighted means
  with the weights 1 / (v + t), v the variance of a session's mean by the scatter of its repeats and
  t that between sessions, which is estimated by moments; the standard error is scaled by the
  residuals (J. Hartung, G. Knapp, Statistics in Medicine 20, 2001, 3875-3889), never below what
  the repeats say, and enlarged where neighbouring residuals are alike, as over a season.
- The level ALPHA holds for all series of a suite and for all their positions (Bonferroni): half of
  it is for changes anywhere, a quarter for events, of which there are few, so that less evidence
  is enough, and a quarter for the newest sessions.
- A segment has MIN_SESSIONS sessions. Newer ones that are off are a provisional change.
- The interval of the position has all those whose likelihood is not lower by more than POSITIONS
  / 2 (Y. Eo, J. Morley, Quantitative Economics 6, 2015, 463-497).
"""

import itertools
import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

ALPHA, CONFIDENCE = 0.05, 0.95
MIN_SESSIONS = 3
PENALTY, CLIP, NEIGHBOURS = 4.0, 2.0, 2
TOGETHER = 32  # ends of segments of which the squares are computed in one step
POSITIONS = 7.35  # twice the difference of logarithms of likelihoods: 95 %
LEAST = 0.005  # of logarithms: smaller changes are not reported, however sure they are
RESOLUTION = 1e-9  # equal values differ by rounding


@dataclass(frozen=True)
class Change:
    """A change of the level of a series.

    Attributes:
        at: the first session of the new level; `first` to `last` is its 95 % interval.
        size: of logarithms, new less old; `low` to `high` is its 95 % interval.
        p: that there is none, adjusted for the suite.
        before, after: numbers of sessions of the two segments, which go from position `start` to
            just before `end`.
        at_event: whether it was found as an event.
        gradual: a straight line fits the two segments better than a step.
    """

    at: int
    first: int
    last: int
    size: float
    low: float
    high: float
    p: float
    before: int
    after: int
    start: int
    end: int
    at_event: bool = False
    gradual: bool = False

    @property
    def provisional(self) -> bool:
        return self.after < MIN_SESSIONS


class Series:
    """One series and its tests.

    Args:
        means: of logarithms, one a session.
        errors: standard errors of these by the scatter of repeats; nan: not known.
    """

    def __init__(self, means: np.ndarray, errors: np.ndarray) -> None:
        self.raw = np.asarray(means, dtype=float)
        self.variances = np.square(np.asarray(errors, dtype=float))
        self.deviation = max(_deviation(self.raw), RESOLUTION)
        self.values = _clipped(self.raw, CLIP * self.deviation)

    def __len__(self) -> int:
        return len(self.values)

    def candidates(self) -> list[int]:
        """Positions at which the level may change."""
        if len(self) < 2 * MIN_SESSIONS:
            return []
        scaled = (self.values - self.values.mean()) / self.deviation
        return pelt(scaled, PENALTY + 2 * math.log(len(self)))

    def step(self, start: int, at: int, end: int) -> "Change":
        """The change at a position between two others; `p` is not adjusted."""
        values, variances = self.values[start:end], self.variances[start:end]
        split, count = at - start, end - start
        weights, known = _weights(values, variances, split)
        totals = weights[:split].sum(), weights[split:].sum()
        old = weights[:split] @ values[:split] / totals[0]
        new = weights[split:] @ values[split:] / totals[1]
        residuals = np.concatenate([values[:split] - old, values[split:] - new])
        freedom = count - 2
        scale = float(weights @ residuals**2) / freedom
        scale = max(scale, 1.0) if known else scale
        error = math.sqrt(scale * (1 / totals[0] + 1 / totals[1]))
        error = max(error * _inflation(residuals), RESOLUTION)
        size = float(new - old)
        half = float(special.stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error
        p = 2 * float(special.stdtr(freedom, -abs(size) / error))
        ends = size - half, size + half
        return Change(at, at, at, size, *ends, p, split, count - split, start, end)

    def costs(self, start: int, end: int) -> np.ndarray:
        """The squares left by a step at each position from start + 1 to end - 1, in variances.

        The variance is that about the best of these steps.
        """
        values = self.values[start:end] - self.values[start:end].mean()
        left = np.cumsum(values)[:-1]
        n = np.arange(1, len(values))
        squares = np.square(values).sum() - left**2 / n - left**2 / (len(values) - n)
        enough = slice(MIN_SESSIONS - 1, max(MIN_SESSIONS, len(squares) - MIN_SESSIONS + 1))
        variance = squares[enough].min() / max(1, len(values) - 2)
        return squares / max(variance, RESOLUTION**2)

    def likely(self, start: int, at: int, end: int) -> tuple[int, int]:
        """The first and last of the positions that are as likely as one, or nearly."""
        costs = self.costs(start, end)
        (near,) = np.nonzero(costs <= costs[at - start - 1] + POSITIONS)
        near = near + start + 1
        return min(int(near[0]), at), max(int(near[-1]), at)

    def is_gradual(self, start: int, at: int, end: int) -> bool:
        """Whether a line fits better than a step; a line has a parameter more than needed."""
        values, x = self.values[start:end], np.arange(end - start)
        line = np.polyval(np.polyfit(x, values, 1), x)
        step = np.repeat(
            [values[: at - start].mean(), values[at - start :].mean()], (at - start, end - at)
        )
        return bool(np.square(values - line).sum() < np.square(values - step).sum())


def pelt(values: np.ndarray, penalty: float) -> list[int]:
    """Where the segments begin, but for the first, that have the least squares and penalties.

    Segments have MIN_SESSIONS values; `penalty` is that of a segment more.
    """
    count = len(values)
    sums, squares = (np.concatenate([[0], np.cumsum(v)]) for v in (values, values**2))
    least = np.full(count + 1, np.inf)  # of the values before a position
    least[0] = -penalty
    previous = np.zeros(count + 1, dtype=int)
    useless_from = np.full(count + 1, count + 1)
    starts = np.array([], dtype=int)
    for first in range(MIN_SESSIONS, count + 1, TOGETHER):
        ends = np.arange(first, min(first + TOGETHER, count + 1))
        starts = np.append(starts, ends - MIN_SESSIONS)
        counts = ends[:, None] - starts
        within = (sums[ends, None] - sums[starts]) ** 2 / np.maximum(counts, 1)
        within = squares[ends, None] - squares[starts] - within
        within[counts < MIN_SESSIONS] = np.inf
        for end, row in zip(ends.tolist(), within, strict=True):
            totals = least[starts] + row
            best = totals.argmin()
            least[end], previous[end] = totals[best] + penalty, starts[best]
        # A start that is worse than to begin anew at `end` never gets better, once one may.
        worse = starts[totals >= least[end]]
        useless_from[worse] = np.minimum(useless_from[worse], end + MIN_SESSIONS)
        starts = starts[useless_from[starts] > end + 1]
    found, end = [], int(previous[count])
    while end > 0:
        found.append(end)
        end = int(previous[end])
    return found[::-1]


def find(
    means: np.ndarray,
    errors: np.ndarray,
    events: Collection[int] = (),
    suite: int = 1,
) -> list[Change]:
    """The changes of a series, in their order.

    Args:
        means: of logarithms, one a session.
        errors: standard errors of these by the scatter of repeats; nan: not known.
        events: positions of sessions at which something is known to have changed.
        suite: number of series that are looked at together.
    """
    series = Series(means, errors)
    if len(series) < MIN_SESSIONS + 1:
        return []
    events = sorted(e for e in events if MIN_SESSIONS <= e <= len(series) - MIN_SESSIONS)
    anywhere = 2 * suite * max(1, len(series) - 2 * MIN_SESSIONS + 1)
    at_event = 4 * suite * max(1, len(events))

    def tested(start, at, end):
        change = series.step(start, at, end)
        is_event = at in events
        p = min(1.0, change.p * (at_event if is_event else anywhere))
        return replace(change, p=p, at_event=is_event)

    positions = _at_events(series, series.candidates(), events)
    positions = _with_events(series, positions, events, at_event)
    changes = _confirmed(tested, positions, len(series))
    changes = _old_enough(series, _moved_to_best(series, tested, changes))
    changes = [_described(series, c, *bounds) for c, *bounds in _in_segments(changes, len(series))]
    return changes + _newest(series, changes, 8 * suite)


def _described(series, change, start, end):
    first, last = series.likely(start, change.at, end)
    gradual = series.is_gradual(start, change.at, end)
    return replace(change, first=first, last=last, gradual=gradual)


def _in_segments(changes, count):
    """(change, start of the segment before it, end of the segment after it) of each."""
    edges = [0, *(change.at for change in changes), count]
    return [(c, edges[i], edges[i + 2]) for i, c in enumerate(changes)]


def _at_events(series, positions, events):
    """Candidates; those as likely at an event are there, once each."""
    edges, moved = [0, *positions, len(series)], []
    for start, at, end in zip(edges, positions, edges[2:], strict=False):
        first, last = series.likely(start, at, end)
        near = [event for event in events if first <= event <= last]
        if near:
            costs = series.costs(start, end)
            at = min(near, key=lambda event: costs[event - start - 1])
        moved.append(at)
    return sorted(set(moved))


def _with_events(series, positions, events, factor):
    """Candidates and those other events that their own test accepts, the surest first."""
    positions = list(positions)
    while True:
        edges = [0, *positions, len(series)]
        best = None
        for start, end in itertools.pairwise(edges):
            inside = [e for e in events if start + MIN_SESSIONS <= e <= end - MIN_SESSIONS]
            if not inside:
                continue
            costs = series.costs(start, end)  # the event at which a step fits best
            change = series.step(start, min(inside, key=lambda e: costs[e - start - 1]), end)
            if change.p * factor < ALPHA and (best is None or change.p < best.p):
                best = change
        if best is None:
            return positions
        positions = sorted([*positions, best.at])


def _confirmed(tested, positions, count):
    """Changes at those positions that tests confirm; the least sure are left out one by one."""
    positions = list(positions)
    while positions:
        edges = [0, *positions, count]
        changes = [
            tested(start, at, end)
            for start, at, end in zip(edges, positions, edges[2:], strict=False)
        ]
        short = {
            edge
            for start, end in itertools.pairwise(edges)
            if end - start < MIN_SESSIONS
            for edge in (start, end)
        }
        doubtful = [c for c in changes if c.p >= ALPHA or abs(c.size) < LEAST]
        doubtful = doubtful or [c for c in changes if c.at in short]
        if not doubtful:
            return changes
        positions.remove(max(doubtful, key=lambda change: (change.p, -abs(change.size))).at)
    return []


def _moved_to_best(series, tested, changes):
    """Changes that are no events, at the best position between their neighbours."""
    moved = []
    for change, _, end in _in_segments(changes, len(series)):
        start = moved[-1].at if moved else 0
        at = change.at
        if not change.at_event:
            costs = series.costs(start, end)
            allowed = range(start + MIN_SESSIONS, end - MIN_SESSIONS + 1)
            at = min(allowed, key=lambda place: costs[place - start - 1], default=at)
        moved.append(tested(start, at, end))
    return [change for change in moved if change.p < ALPHA and abs(change.size) >= LEAST]


def _old_enough(series, changes):
    """Changes without one that fits better with fewer than MIN_SESSIONS of the new level."""
    if not changes:
        return changes
    *_, (_, start, end) = _in_segments(changes, len(series))
    costs = series.costs(start, end)[MIN_SESSIONS - 1 :]
    best = start + MIN_SESSIONS + int(np.argmin(costs))
    return changes[:-1] if best > end - MIN_SESSIONS else changes


def _newest(series, changes, factor):
    """[The provisional change of the last one or two sessions], or []."""
    start, end = changes[-1].at if changes else 0, len(series)
    places = [at for at in (end - 2, end - 1) if at - start >= MIN_SESSIONS]
    surest = min((series.step(start, at, end) for at in places), key=lambda c: c.p, default=None)
    if surest is None or surest.p * factor >= ALPHA or abs(surest.size) < LEAST:
        return []
    return [replace(surest, p=surest.p * factor)]


def without_outliers(means: np.ndarray) -> np.ndarray:
    """The means of a series, in which outliers lie CLIP standard deviations off."""
    return _clipped(means, CLIP * max(_deviation(means), RESOLUTION))


def _deviation(values):
    """The standard deviation of a series without its steps: by differences of neighbours."""
    if len(values) < 2:
        return 0.0
    steps = np.sort(abs(values[1:] - values[:-1]))
    middle = len(steps) // 2
    median = (steps[middle] + steps[~middle]) / 2
    return float(1.4826 * median / math.sqrt(2))


def _clipped(values, room):
    """Values at most `room` beyond the range of their neighbours; the first and last as they are.

    Of three sessions of one level each has another one of it near, so that no level is lost.
    """
    count = len(values)
    if count <= MIN_SESSIONS:
        return values.copy()
    edge = np.full(NEIGHBOURS, np.nan)
    padded = np.concatenate([edge, values, edge])
    beside = [
        padded[NEIGHBOURS + shift : NEIGHBOURS + shift + count]
        for shift in range(-NEIGHBOURS, NEIGHBOURS + 1)
        if shift
    ]
    low, high = np.fmin.reduce(beside) - room, np.fmax.reduce(beside) + room
    clipped = np.clip(values, low, high)
    clipped[[0, -1]] = values[[0, -1]]
    return clipped


def _weights(values, variances, split):
    """(weights of sessions, whether the scatter of repeats is known)."""
    count = len(values)
    if not np.all(variances > 0):
        # Sessions of one run have no scatter of their own; `errors` has that of the others.
        return np.ones(count), False
    squares = expected = 0.0
    for side, own in ((values[:split], variances[:split]), (values[split:], variances[split:])):
        squares += side @ side - side.sum() ** 2 / len(side)
        expected += own.sum() * (1 - 1 / len(side))
    between = max(0.0, (squares - expected) / (count - 2))
    return 1 / (variances + between), True


def _inflation(residuals):
    """By how much likeness of neighbouring residuals enlarges a standard error."""
    count = len(residuals)
    total = float(residuals @ residuals)
    if total <= 0 or count < 4 * MIN_SESSIONS:
        return 1.0
    alike = float(residuals[1:] @ residuals[:-1]) / total
    if alike < special.ndtri(CONFIDENCE) / math.sqrt(count):
        return 1.0
    alike = min(0.9, alike)
    return math.sqrt((1 + alike) / (1 - alike))
