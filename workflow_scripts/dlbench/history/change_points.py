"""Changes of the level of series: means of logarithms, one a session, in the order of dates.

- Outliers: a session farther than CLIP scatters from the running median of WINDOW sessions counts
  as if it lay just so far off. The scatter is that of differences over LAG sessions: it knows no
  steps, and noise that remembers makes it hardly smaller.
- Candidates are those of the segmentation with the least squares and penalties (B. Jackson et al.,
  IEEE Signal Process. Lett. 12, 2005, 105-108). A penalty of PENALTY + 2 log(sessions) squares of
  the scatter screens only.
- Test: the step between two segments over its standard error, by the squares that all levels of the
  series leave. Noise of autocorrelation r makes the variance of a mean f = (1 + r) / (1 - r) times
  as large, and degrees of freedom sqrt(f) times as few. r is the larger one of the series and of
  the median of those analysed together, plus its standard error and its bias by fitted levels: so
  a series whose noise looks independent by chance is not believed.
- The level ALPHA holds for all series and positions (Bonferroni). A change that its neighbour turns
  back needs more evidence, and MIN_BACK sessions between them, since heavy tails make such pairs.
- The weakest change is left out, and the others are tested again at their best places, until all
  hold and are at least LEAST.
- The interval of a position has all those whose likelihood is not lower by more than POSITIONS / 2
  (Y. Eo, J. Morley, Quantitative Economics 6, 2015, 463-497), with f.

How noise that remembers is taken for steps: X. Shi et al., arXiv 2101.01960.

Changes that most conditions of a machine share are one finding:

- The level that all conditions share is, for each session, the median over conditions of their
  distances from their own medians (J. W. Tukey's median polish). Its changes are looked for as
  those of any series; where conditions scatter, it shows smaller changes than any of them.
- The median of few conditions moves with a single one. So a change of that level is shared only if
  it explains the sizes that conditions have at its date by one number as well as single conditions
  with sizes of their own do, each of which costs PRICE and twice the logarithm of all conditions;
  or if more than half of the conditions show it by themselves.
- Of a shared change each condition has its own size, which is taken away from its series before
  that is looked at by itself. Where the interval of the size lies wholly below half of the shared
  one, the condition is spared: nothing is taken away, and the finding says so.
- Changes of several conditions that have one direction, and intervals of dates with something in
  common, are one finding.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import ndimage, special

ALPHA, CONFIDENCE = 0.05, 0.95
MIN_SESSIONS = 3  # of a level
MIN_BACK = 5  # of a level that comes and goes: fewer are outliers
WINDOW, CLIP, LAG = 11, 3.0, 3
PENALTY, TOGETHER = 4.0, 32  # ends of segments whose squares are computed in one step
MOST_ALIKE = 0.95
GOES_ON, TURNED_BACK = 2, 10  # tests that a change counts as, at each position
POSITIONS = 7.35  # twice the difference of logarithms of likelihoods: 95 %
LEAST = 0.005  # of logarithms: smaller changes are not reported, however sure they are
RESOLUTION = 1e-9  # equal values differ by rounding


@dataclass(frozen=True)
class Change:
    """A change of the level of a series. Positions are sessions of the machine.

    Attributes:
        at: the first session of the new level; `first` to `last` is its 95 % interval.
        size: of logarithms, new less old; `error` is its standard error, `low` to `high` its 95 %
            interval.
        p: that there is none, adjusted for the suite.
        before, after: numbers of sessions of the two segments, which go from position `start` to
            just before `end`.
        gradual: a straight line fits the two segments better than a step.
    """

    at: int
    first: int
    last: int
    size: float
    error: float
    low: float
    high: float
    p: float
    before: int
    after: int
    start: int
    end: int
    gradual: bool


@dataclass(frozen=True)
class Noise:
    """What series that are analysed together say of their noise.

    `alike`: the median of their autocorrelations; `series`: how many they are.
    """

    alike: float = 0.0
    series: int = 1

    def inflation(self, residuals: np.ndarray, levels: int) -> float:
        """f, by which the variance of a mean is larger than that of independent values."""
        alike = _likeness(residuals, levels)
        if self.series > 1:
            alike = max(alike, self.alike)
        alike = min(max(alike + 1 / math.sqrt(len(residuals) * self.series), 0.0), MOST_ALIKE)
        return (1 + alike) / (1 - alike)


def noise_of(rows: Iterable[np.ndarray]) -> Noise:
    """The noise of series; nan: not measured."""
    alike = []
    for row in rows:
        values = without_outliers(row[np.isfinite(row)])
        if len(values) >= 2 * MIN_SESSIONS:
            places = candidates(values)
            alike.append(_likeness(values - _levels(values, places), len(places) + 1))
    return Noise(float(np.median(alike)), len(alike)) if alike else Noise()


def changes_of(row: np.ndarray, noise: Noise, suite: int = 1) -> list[Change]:
    """The changes of a series, in their order.

    `row`: means of logarithms, one a session; nan: not measured. `suite`: how many series are
    looked at together.
    """
    (present,) = np.nonzero(np.isfinite(row))
    values = without_outliers(row[present])
    places = candidates(values)
    while places:
        places = _at_best(values, places)
        changes = _tested(values, places, noise, suite)
        doubtful = [c for c in changes if c.p >= ALPHA or abs(c.size) < LEAST]
        if not doubtful:
            return [_placed(change, present) for change in changes]
        places.remove(max(doubtful, key=lambda change: (change.p, -abs(change.size))).at)
    return []


def step(row: np.ndarray, at: int, start: int, end: int, noise: Noise) -> Change | None:
    """The step of a series at a session, by those from `start` to `end`; None: too few."""
    (present,) = np.nonzero(np.isfinite(row[:end]))
    present = present[present >= start]
    split = int(np.searchsorted(present, at))
    if not 0 < split < len(present) or len(present) <= MIN_SESSIONS:
        return None
    (change,) = _tested(without_outliers(row[present]), [split], noise, 1)
    return _placed(change, present)


def without_outliers(values: np.ndarray) -> np.ndarray:
    """The means of a series, in which outliers lie CLIP scatters off."""
    if len(values) <= MIN_SESSIONS:
        return values
    middle = ndimage.median_filter(values, WINDOW, mode="reflect")
    room = CLIP * _scatter(values)
    return np.clip(values, middle - room, middle + room)


def candidates(values: np.ndarray, penalty: float | None = None) -> list[int]:
    """Where the segments begin, but for the first, that have the least squares and penalties."""
    count = len(values)
    if count < 2 * MIN_SESSIONS:
        return []
    if penalty is None:
        penalty = (PENALTY + 2 * math.log(count)) * _scatter(values) ** 2
    values = values - values.mean()
    sums, squares = (np.concatenate([[0.0], np.cumsum(v)]) for v in (values, values**2))
    least, previous = np.full(count + 1, np.inf), np.zeros(count + 1, dtype=int)
    least[0] = -penalty  # of the values before a position
    for first in range(MIN_SESSIONS, count + 1, TOGETHER):
        ends = np.arange(first, min(first + TOGETHER, count + 1))[:, None]
        starts = np.arange(ends[-1, 0] - MIN_SESSIONS + 1)
        lengths = np.maximum(ends - starts, 1)
        within = squares[ends] - squares[starts] - (sums[ends] - sums[starts]) ** 2 / lengths
        for end, row in zip(ends[:, 0], within, strict=True):
            totals = (least[: len(row)] + row)[: end - MIN_SESSIONS + 1]
            previous[end] = totals.argmin()
            least[end] = totals[previous[end]] + penalty
    found, end = [], int(previous[count])
    while end > 0:
        found.append(end)
        end = int(previous[end])
    return found[::-1]


def _at_best(values, places):
    """Places, each at the best one between its neighbours."""
    edges = [0, *places, len(values)]
    for index in range(1, len(edges) - 1):
        start, end = edges[index - 1], edges[index + 1]
        costs = _costs(values[start:end])[MIN_SESSIONS - 1 : end - start - MIN_SESSIONS]
        edges[index] = start + MIN_SESSIONS + int(costs.argmin())
    return edges[1:-1]


def _tested(values, places, noise, suite):
    """The changes at some places; the levels between them are one model."""
    count, edges, levels = len(values), [0, *places, len(values)], _levels(values, places)
    residuals, freedom = values - levels, count - len(places) - 1
    f = noise.inflation(residuals, len(places) + 1)
    variance = f * max(float(residuals @ residuals) / freedom, RESOLUTION**2)
    freedom /= math.sqrt(f)
    margin = float(special.stdtrit(freedom, 0.5 + CONFIDENCE / 2))
    steps = {index: float(levels[at] - levels[at - 1]) for index, at in enumerate(places)}
    positions = suite * max(1, count - 2 * MIN_SESSIONS + 1)
    changes = []
    for index, (start, at, end) in enumerate(zip(edges, places, edges[2:], strict=False)):
        size = steps[index]
        error = math.sqrt(variance * (1 / (at - start) + 1 / (end - at)))
        beside = {index - 1: at - start, index + 1: end - at}
        back = [n for other, n in beside.items() if other in steps and steps[other] * size < 0]
        tests = positions * (TURNED_BACK if back else GOES_ON)
        p = 2 * float(special.stdtr(freedom, -abs(size) / error))
        costs = _costs(values[start:end])
        likely = np.flatnonzero(costs <= costs[at - start - 1] + POSITIONS * variance)
        changes.append(
            Change(
                at=at,
                first=min(start + 1 + int(likely[0]), at),
                last=max(start + 1 + int(likely[-1]), at),
                size=size,
                error=error,
                low=size - margin * error,
                high=size + margin * error,
                p=min(1.0, p * tests) if min(back, default=MIN_BACK) >= MIN_BACK else 1.0,
                before=at - start,
                after=end - at,
                start=start,
                end=end,
                gradual=bool(_squares_about_line(values[start:end]) < costs[at - start - 1]),
            )
        )
    return changes


def _placed(change, present):
    """A change of a series with gaps; one before it may have it, too."""
    return replace(
        change,
        at=int(present[change.at]),
        first=int(present[change.first - 1]) + 1,
        last=int(present[change.last]),
        start=int(present[change.start]),
        end=int(present[change.end - 1]) + 1,
    )


def _costs(values):
    """The squares left by a step at each position from 1 on."""
    values, n = values - values.mean(), np.arange(1, len(values))
    sums = np.cumsum(values)[:-1]
    return values @ values - sums**2 / n - sums**2 / (len(values) - n)


def _squares_about_line(values):
    values, x = values - values.mean(), np.arange(len(values)) - (len(values) - 1) / 2
    return float(values @ values - (values @ x) ** 2 / (x @ x))


def _levels(values, places):
    """Of each value, the mean of its segment."""
    edges = [0, *places, len(values)]
    means = [values[start:end].mean() for start, end in itertools.pairwise(edges)]
    return np.repeat(means, np.diff(edges))


def _likeness(residuals, levels):
    """The autocorrelation of neighbours, without its bias by fitted levels."""
    squares = float(residuals @ residuals)
    alike = float(residuals[1:] @ residuals[:-1]) / squares if squares > 0 else 0.0
    return alike + (levels + 1) / len(residuals)


def _scatter(values):
    """The standard deviation of a series without its steps."""
    lag = LAG if len(values) > 3 * LAG else 1  # most differences must be within a level
    off = abs(values[lag:] - values[:-lag])
    median = float(np.median(off))
    if median < RESOLUTION:  # rounded values: most are equal
        return max(math.sqrt(float(off @ off) / len(off) / 2), RESOLUTION)
    return 1.4826 / math.sqrt(2) * median


POLISHES = 3
FEWEST = 3  # conditions whose median tells what they share
PRICE = 2.0
SHOWN = 3.0  # standard errors of a change that a condition shows by itself
SPARED = 0.5  # of a shared change: conditions that surely have less are spared


@dataclass(frozen=True)
class Found:
    """A finding: a change of one condition or more. Positions are sessions of the machine.

    Attributes:
        change: of the shared level, or of its conditions.
        members: {condition: its change} of those that have it.
        spared: conditions that show that it is not theirs.
        shared: whether it is one of the level that all share.
    """

    change: Change
    members: dict[int, Change]
    spared: tuple[int, ...] = ()
    shared: bool = False


def tests_of(conditions: int) -> int:
    """How many series are tested for so many conditions: with the level that they share."""
    return conditions + (conditions >= FEWEST)


def find(means: np.ndarray, suite: int | None = None) -> list[Found]:
    """The findings of a machine in conditions of one metric, in the order of dates.

    Args:
        means: of logarithms, one row a condition, one column a session; nan: not measured.
        suite: how many series of the machine are tested, if it has other metrics, too.
    """
    suite, noise = suite or tests_of(len(means)), noise_of(means)
    level = changes_of(shared_level(means), Noise(), suite)
    changes = [change for change in level if _is_shared(change, means, noise)]
    own: Sequence[Sequence[Change]] = [[] for _ in means]
    for _ in range(2 if changes else 1):  # what is a condition's own bounds its sizes
        shared, rest = _without(changes, means, own, noise)
        own = [changes_of(row, noise, suite) for row in rest]
    return sorted(shared + _grouped(own), key=lambda one: (one.change.at, -len(one.members)))


def shared_level(means: np.ndarray) -> np.ndarray:
    """The level that all conditions share in each session; nan: with fewer than FEWEST of them."""
    level = np.zeros(means.shape[1])
    known = np.isfinite(means)
    enough = known.sum(axis=0) >= FEWEST
    rest = np.where(known & enough, means, np.nan)
    for _ in range(POLISHES):
        own = _median(rest - level, axis=1)[:, None]
        level = np.where(enough, _median(rest - own, axis=0), 0.0)
    return np.where(enough, level, np.nan)


def _is_shared(change, means, noise):
    """Whether a change of the shared level is one of most conditions, not of single ones."""
    found = (step(row, change.at, change.start, change.end, noise) for row in means)
    steps = [one for one in found if one]
    if len(steps) < FEWEST:
        return False
    sizes, errors = np.array([(one.size, one.error) for one in steps]).T
    price = PRICE + 2 * math.log(len(steps))
    together = np.average(sizes, weights=errors**-2.0)
    explained = np.sum(((sizes - together) / errors) ** 2) + price
    left = np.cumsum(np.sort((sizes / errors) ** 2))[::-1]  # without the strongest 0, 1, 2 ...
    alone = min(left[single] + price * single for single in range(1, len(steps) // 2 + 1))
    show = np.sum(sizes / errors * np.sign(change.size) > SHOWN)
    return bool(explained <= alone or show > len(steps) / 2)


def _without(changes, means, own, noise):
    """(findings of shared changes, series without them).

    `own`: the changes that each condition has beside them, as far as they are known.
    """
    members, spared, rest = [{} for _ in changes], [[] for _ in changes], means.copy()
    for index, row in enumerate(means):
        for number, change in enumerate(changes):
            size = _size(change, row, own[index], noise)
            if size is None:
                continue
            if max(size.low / change.size, size.high / change.size) < SPARED:
                spared[number].append(index)
            else:
                members[number][index] = size
                rest[index, change.at :] -= size.size
    parts = zip(changes, members, map(tuple, spared), strict=True)
    return [Found(*part, shared=True) for part in parts if part[1]], rest


def _size(change, row, own, noise):
    """The size of a shared change in a condition, between the other changes of that."""
    start, end = change.start, change.end
    for one in own:
        if one.size * change.size > 0 and abs(one.at - change.at) <= MIN_SESSIONS:
            continue  # the same change: of one series its date is less sure
        if one.last < change.first:
            start = max(start, one.at)
        elif one.first > change.last:
            end = min(end, one.at)
    bounded = step(row, change.at, start, end, noise)
    return bounded or step(row, change.at, change.start, change.end, noise)


def _grouped(own):
    """Findings of the changes that no shared one explains.

    The surest change of a group gives its date, that of the median size its size.
    """
    left = [(index, change) for index, changes in enumerate(own) for change in changes]
    left.sort(key=lambda item: item[1].p)
    found = []
    while left:
        _, leader = left[0]
        members: dict[int, Change] = {}
        for index, change in left:
            if _meets(change, leader):
                members.setdefault(index, change)
        left = [item for item in left if not _meets(item[1], leader)]
        middle = sorted(members.values(), key=lambda one: one.size)[len(members) // 2]
        sized = replace(leader, size=middle.size, low=middle.low, high=middle.high)
        found.append(Found(sized, members))
    return found


def _meets(a, b):
    """Whether two changes have one direction, and intervals of dates with something in common."""
    return a.size * b.size > 0 and a.first <= b.last and b.first <= a.last


def _median(values, axis):
    """The median of what is known; 0 where nothing is."""
    known = np.isfinite(values).any(axis=axis)
    filled = np.where(np.expand_dims(known, axis), values, 0.0)
    return np.nanmedian(filled, axis=axis)
