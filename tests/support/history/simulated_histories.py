"""Histories with a known truth: means of sessions of the conditions of one machine.

Logarithms are mu_c + truth_s + common_s + own_cs: a scatter of sessions that all conditions share,
one of each condition's own, and that of the repeats, of which a session's mean has its share.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dlbench.history import shared_changes

TOGETHER = 200  # histories that are in memory at once


@dataclass(frozen=True)
class Kind:
    """A kind of histories.

    Attributes:
        sessions, conditions: how many.
        repeats: least and most of a condition in a session.
        scatter: of repeats; between: of sessions, half of the variance shared by all conditions.
        step: size of a change at one session in the middle half; `to`: how many conditions have it.
        ramp: sessions over which it comes; 1 is a step.
        event: whether the fingerprints change at that session, as at two others by chance.
        outliers: share of sessions that are off by ten times the scatter.
        season: amplitude of a wave of 20 sessions that all conditions share.
        missing: share of conditions that a session lacks; `gaps`: share of sessions without any.
    """

    sessions: int = 30
    conditions: int = 50
    repeats: tuple[int, int] = (5, 5)
    scatter: float = 0.01
    between: float = 0.003
    step: float = 0.0
    to: int = 50
    ramp: int = 1
    event: bool = False
    outliers: float = 0.0
    season: float = 0.0
    missing: float = 0.0
    gaps: float = 0.0


@dataclass(frozen=True)
class Simulated:
    """One history; `at` is the session of the change, `counts` the repeats of each mean."""

    means: np.ndarray
    errors: np.ndarray
    counts: np.ndarray
    events: list[list[int]]
    at: int

    def findings(self):
        return shared_changes.find(self.means, self.errors, self.events)


def drawn(kind: Kind, chance: np.random.Generator) -> Simulated:
    """A history of a kind."""
    count = round(kind.sessions * (1 - kind.gaps))
    shape = kind.conditions, count
    at = int(chance.integers(count // 4, count - count // 4))
    truth = np.clip((np.arange(count) - at + 1) / kind.ramp, 0, 1) * np.log1p(kind.step)
    wave = kind.season * np.sin(2 * np.pi * (np.arange(count) / 20 + chance.random()))
    counts = chance.integers(kind.repeats[0], kind.repeats[1] + 1, shape)
    means = chance.normal(0, 1, shape) * np.sqrt(kind.scatter**2 / counts + kind.between**2 / 2)
    means += wave + chance.normal(0, kind.between / np.sqrt(2), count)
    changed = chance.permutation(kind.conditions)[: kind.to]
    means[changed] += truth
    off = chance.random(count) < kind.outliers
    means[:, off] += 10 * kind.scatter * chance.choice([-1, 1], off.sum())
    means[chance.random(shape) < kind.missing] = np.nan
    freedom = (counts - 1).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = kind.scatter * np.sqrt(chance.chisquare(np.maximum(freedom, 1)) / freedom)
    errors = np.where(freedom > 0, pooled, np.nan)[:, None] / np.sqrt(counts)
    events = sorted({at, *chance.integers(1, count, 2).tolist()}) if kind.event else []
    return Simulated(means, errors, counts, [events] * kind.conditions, at)


@dataclass(frozen=True)
class Outcome:
    """What became of some histories.

    Attributes:
        detected: share in which the change is found, with its direction, at a date whose interval
            has the true one or that is at most one session off.
        false: share with any other finding that is not provisional.
        provisional: share with any other finding that is.
        off: median of how many sessions the date is off, of those detected.
        dated: share of those detected whose interval has the true date.
        sized: share of those detected whose interval has the true size.
    """

    detected: float
    false: float
    provisional: float
    off: float
    dated: float
    sized: float


def outcome(
    kind: Kind, histories: int, chance: np.random.Generator, apply: Callable = map
) -> Outcome:
    """What the analysis finds in some histories of a kind.

    Args:
        apply: as `map`, or one that uses several processes: the histories are the same.
    """
    detected = false = provisional = dated = sized = 0
    off = []
    for history, all_found in _analysed(kind, histories, chance, apply):
        others, hit = [], None
        for found in all_found:
            if kind.step and _is_true(found.change, history.at, kind):
                hit = hit or found.change
            else:
                others.append(found.change)
        false += any(not change.provisional for change in others)
        provisional += any(change.provisional for change in others)
        if hit:
            detected += 1
            off.append(abs(hit.at - history.at))
            dated += hit.first <= history.at <= hit.last
            sized += hit.low <= np.log1p(kind.step) <= hit.high
    share = max(1, detected)
    return Outcome(
        detected / histories,
        false / histories,
        provisional / histories,
        float(np.median(off)) if off else np.nan,
        dated / share,
        sized / share,
    )


def _analysed(kind, histories, chance, apply):
    """(history, its findings) of each, drawn a few at a time to bound the memory."""
    for first in range(0, histories, TOGETHER):
        some = [drawn(kind, chance) for _ in range(min(TOGETHER, histories - first))]
        yield from zip(some, apply(Simulated.findings, some), strict=True)


def _is_true(change, at, kind):
    near = change.first - 1 <= at + kind.ramp - 1 and at <= change.last + 1
    return near and (change.size > 0) == (kind.step > 0)
