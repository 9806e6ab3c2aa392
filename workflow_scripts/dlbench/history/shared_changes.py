"""Changes of all conditions of a machine: those that most share are one finding.

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

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dlbench.history import change_points
from dlbench.history.change_points import MIN_SESSIONS, Change, Noise

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
    suite, noise = suite or tests_of(len(means)), change_points.noise_of(means)
    level = change_points.find(shared_level(means), Noise(), suite)
    changes = [change for change in level if _is_shared(change, means, noise)]
    own: Sequence[Sequence[Change]] = [[] for _ in means]
    for _ in range(2 if changes else 1):  # what is a condition's own bounds its sizes
        shared, rest = _without(changes, means, own, noise)
        own = [change_points.find(row, noise, suite) for row in rest]
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
    found = (change_points.step(row, change.at, change.start, change.end, noise) for row in means)
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

    Args:
        own: the changes that each condition has beside them, as far as they are known.
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
    bounded = change_points.step(row, change.at, start, end, noise)
    return bounded or change_points.step(row, change.at, change.start, change.end, noise)


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
