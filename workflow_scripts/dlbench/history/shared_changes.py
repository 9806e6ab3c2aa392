"""Changes of all conditions of a machine: those that most share are one finding.

- The level that all conditions share is, for each session, the median over conditions of their
  distances from their own medians (J. W. Tukey's median polish). Its changes are looked for as
  those of any series; where conditions scatter, it shows smaller changes than any of them.
- Of a shared change each condition has its own size, which is taken away from its series before
  that is looked at by itself. Where the interval of the size lies wholly below half of the shared
  one, the condition is spared: nothing is taken away, and the finding says so.
- Changes of several conditions that have one direction, and intervals of dates with something in
  common, are one finding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dlbench.history import change_points
from dlbench.history.change_points import MIN_SESSIONS, Change

POLISHES = 3
FEWEST = 3  # conditions whose median tells what they share
MEDIAN_OVER_MEAN = np.sqrt(np.pi / 2)  # standard errors, of normal values
SHARE_SHARED = 0.5  # of conditions that a shared change must not spare


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


def find(
    means: np.ndarray,
    errors: np.ndarray,
    events: Sequence[Sequence[int]] = (),
    suite: int | None = None,
) -> list[Found]:
    """The findings of a machine in conditions of one metric, in the order of dates.

    Args:
        means: of logarithms, one row a condition, one column a session; nan: not measured.
        errors: standard errors of these by the scatter of repeats; nan: not known.
        events: of each condition, the sessions at which something is known to have changed.
        suite: how many series of the machine are tested, if it has other metrics, too.
    """
    count = len(means)
    events = events or [()] * count
    has_level = count >= FEWEST
    suite = suite or tests_of(count)
    rest = np.array(means, dtype=float)
    shared = []
    if has_level:
        level, level_errors = shared_level(means, errors)
        common = _common_events(events, means)
        for change in _of_series(level, level_errors, common, suite):
            found = _shared(change, rest, errors, events, suite)
            if len(found.members) >= max(2, SHARE_SHARED * _present(change, means)):
                shared.append(found)
                for index, own in found.members.items():
                    rest[index, change.at :] -= own.size
    own = {
        index: _of_series(rest[index], errors[index], events[index], suite)
        for index in range(count)
    }
    found = shared + _grouped(own)
    return sorted(found, key=lambda one: (one.change.at, -len(one.members)))


def shared_level(means: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the level that all conditions share in each session, its standard errors).

    nan in sessions with fewer than FEWEST conditions.
    """
    level = np.zeros(means.shape[1])
    known = np.isfinite(means)
    enough = known.sum(axis=0) >= FEWEST
    rest = np.where(known & enough, means, np.nan)
    for _ in range(POLISHES):
        own = _median(rest - level, axis=1)[:, None]
        level = np.where(enough, _median(rest - own, axis=0), 0.0)
    variances = np.where(known, np.square(errors), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = np.nansum(variances, axis=0) / known.sum(axis=0) ** 2
    total[np.isnan(variances).sum(axis=0) > (~known).sum(axis=0)] = np.nan
    return np.where(enough, level, np.nan), MEDIAN_OVER_MEAN * np.sqrt(total)


def _of_series(means, errors, events, suite):
    """The changes of a series with gaps; positions are those of the sessions of the machine."""
    (present,) = np.nonzero(np.isfinite(means))
    if len(present) <= MIN_SESSIONS:
        return []
    own_events = {int(np.searchsorted(present, event)) for event in events} - {0, len(present)}
    changes = change_points.find(means[present], errors[present], own_events, suite)
    return [_placed(change, present) for change in changes]


def _placed(change, present):
    """A change of a series at the sessions of the machine; a gap before it may have it, too."""
    first = int(present[change.first - 1]) + 1 if change.first else int(present[0])
    return replace(
        change,
        at=int(present[change.at]),
        first=first,
        last=int(present[change.last]),
        start=int(present[change.start]),
        end=int(present[change.end - 1]) + 1,
    )


def _shared(change, means, errors, events, suite):
    """A change of the shared level with the size that it has in each condition.

    What is left of a condition without the change may have changes of its own: these bound the
    sessions from which its size is taken in the end.
    """
    members, spared = {}, []
    for index, values in enumerate(means):
        own_errors = errors[index]
        size = _size(change, values, own_errors, change.start, change.end)
        if size is None:
            continue
        rest = values.copy()
        if not _is_spared(size, change):
            rest[change.at :] -= size.size
        start, end = change.start, change.end
        for one in _of_series(rest, own_errors, events[index], suite):
            if (one.size > 0) == (change.size > 0) and abs(one.at - change.at) <= MIN_SESSIONS:
                continue  # the same change: of one series its date is less sure
            if one.last < change.first:
                start = max(start, one.at)
            elif one.first > change.last:
                end = min(end, one.at)
        size = _size(change, values, own_errors, start, end) or size
        if _is_spared(size, change):
            spared.append(index)
        else:
            members[index] = size
    return Found(change, members, tuple(spared), shared=True)


def _size(change, values, errors, start, end):
    """The change of one series at a shared one, from some sessions; None if these are too few."""
    (present,) = np.nonzero(np.isfinite(values))
    present = present[(present >= start) & (present < end)]
    split = int(np.searchsorted(present, change.at))
    if split < 1 or split >= len(present) or len(present) <= MIN_SESSIONS:
        return None
    series = change_points.Series(values[present], errors[present])
    return _placed(series.step(0, split, len(present)), present)


def _is_spared(size, change):
    """Whether a condition shows that it has less than half of a shared change."""
    limit = change.size / 2
    return size.high < limit if change.size > 0 else size.low > limit


def _present(change, means):
    """How many conditions were measured on both sides of a change."""
    known = np.isfinite(means)
    sides = known[:, change.start : change.at], known[:, change.at : change.end]
    return int((sides[0].any(axis=1) & sides[1].any(axis=1)).sum())


def _grouped(own):
    """Findings of the changes that no shared one explains.

    The surest change of a group gives its date, that of the median size its size.
    """
    left = [(index, change) for index, changes in own.items() for change in changes]
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
    return (a.size > 0) == (b.size > 0) and a.first <= b.last and b.first <= a.last


def _common_events(events, means):
    """Sessions that are an event of at least half of the conditions that they have."""
    known = np.isfinite(means)
    counts = np.zeros(means.shape[1])
    for row in events:
        counts[list(row)] += 1
    (common,) = np.nonzero((counts > 0) & (counts >= 0.5 * known.sum(axis=0)))
    return [int(at) for at in common]


def _median(values, axis):
    """The median of what is known; 0 where nothing is."""
    known = np.isfinite(values).any(axis=axis)
    filled = np.where(np.expand_dims(known, axis), values, 0.0)
    return np.nanmedian(filled, axis=axis)
