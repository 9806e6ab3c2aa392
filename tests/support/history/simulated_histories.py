"""Histories with a known truth: means of sessions of the conditions of one machine."""

import math
from dataclasses import dataclass

import numpy as np

from dlbench.history import change_points

USUAL_REPEATS, NEAR = 5, 2  # the latter: sessions by which the date of a change may be off


@dataclass(frozen=True)
class Kind:
    """A kind of histories.

    Attributes:
        sessions, conditions: how many.
        scatter: of means of sessions; half of the variance is that of USUAL_REPEATS repeats.
        alike: autocorrelation of the noise from one session to the next.
        common: share of its variance that all conditions share.
        freedom: degrees of freedom of Student's t, from which it is drawn; infinite: normal.
        repeats: least and most of a condition in a session.
        outlier: loss of one condition in one session before the last.
        outliers: share of sessions in which all conditions are off by ten scatters.
        season: amplitude of a wave of 20 sessions that all conditions share.
        missing: share of conditions that a session lacks.
        step: size of a change at one session; `to`: how many conditions have it.
        newest: sessions since the change; 0: any in the middle half.
        back: sessions after which it is undone; 0: it stays.
        ramp: sessions over which it comes; 1 is a step.
    """

    sessions: int = 60
    conditions: int = 5
    scatter: float = 0.01
    alike: float = 0.0
    common: float = 0.0
    freedom: float = math.inf
    repeats: tuple[int, int] = (USUAL_REPEATS, USUAL_REPEATS)
    outlier: float = 0.0
    outliers: float = 0.0
    season: float = 0.0
    missing: float = 0.0
    step: float = 0.0
    to: int = 1
    newest: int = 0
    back: int = 0
    ramp: int = 1


@dataclass(frozen=True)
class Simulated:
    """One history; `counts` are the repeats of each mean.

    Attributes:
        changed: conditions that have the change; `at`: its session.
    """

    means: np.ndarray
    counts: np.ndarray
    changed: frozenset[int]
    at: int


def drawn(kind: Kind, chance: np.random.Generator) -> Simulated:
    shape = kind.conditions, kind.sessions
    counts = chance.integers(kind.repeats[0], kind.repeats[1] + 1, shape)
    own, shared = _noise(kind, shape, chance), _noise(kind, shape[1:], chance)
    means = np.sqrt(1 - kind.common) * own + np.sqrt(kind.common) * shared
    means *= kind.scatter * np.sqrt((1 + USUAL_REPEATS / counts) / 2)
    place = np.arange(kind.sessions)
    means += kind.season * np.sin(2 * np.pi * (place / 20 + chance.random()))
    quarter = kind.sessions // 4
    at = kind.sessions - kind.newest
    if not kind.newest:
        at = int(chance.integers(quarter, kind.sessions - quarter - kind.back))
    changed = chance.permutation(kind.conditions)[: kind.to]
    truth = np.clip((place - at + 1) / kind.ramp, 0, 1) * np.log1p(kind.step)
    means[changed] += np.where(place < at + (kind.back or kind.sessions), truth, 0)
    means[chance.integers(shape[0]), chance.integers(shape[1] - 1)] += np.log1p(-kind.outlier)
    off = chance.random(kind.sessions) < kind.outliers
    means[:, off] += 10 * kind.scatter * chance.choice([-1, 1], off.sum())
    means[chance.random(shape) < kind.missing] = np.nan
    return Simulated(means, counts, frozenset(changed.tolist()), at)


def _noise(kind, shape, chance):
    """Autocorrelated noise of variance 1, along the sessions."""
    if math.isinf(kind.freedom):
        noise = chance.normal(size=shape)
    else:
        scale = math.sqrt(1 - 2 / kind.freedom)
        noise = chance.standard_t(kind.freedom, shape) * scale
    for at in range(1, shape[-1]):
        new = math.sqrt(1 - kind.alike**2) * noise[..., at]
        noise[..., at] = kind.alike * noise[..., at - 1] + new
    return noise


@dataclass(frozen=True)
class Outcome:
    """What becomes of histories of a kind.

    Attributes:
        found: share in which the change is found (and that it is undone), in its direction and at
            most NEAR sessions off.
        named: share in which just the conditions that changed are named for it.
        false: share with any other finding.
        dated, sized: shares of those found whose intervals have the truth.
    """

    found: float
    named: float
    false: float
    dated: float
    sized: float


def outcome(kind: Kind, histories: int, seed: int) -> Outcome:
    """What the analysis finds in some histories of a kind."""
    chance, counts = np.random.default_rng(seed), np.zeros(5)
    for _ in range(histories):
        history = drawn(kind, chance)
        found = change_points.find(history.means)
        size = np.log1p(kind.step)
        true = [one for one in found if _is(one, history, history.at, size, kind.ramp)]
        end = history.at + kind.back
        undone = [one for one in found if kind.back and _is(one, history, end, -size, 1)]
        hit = bool(true) and bool(undone or not kind.back)
        counts[0] += hit
        counts[1] += hit and true[0].members.keys() == history.changed
        counts[2] += len(found) > len(true) + len(undone)
        counts[3] += hit and true[0].change.first <= history.at <= true[0].change.last
        counts[4] += hit and true[0].change.low <= size <= true[0].change.high
    counts[3:] /= max(1, counts[0])
    counts[:3] /= histories
    return Outcome(*counts.tolist())


def _is(found, history, at, size, ramp):
    near = at - NEAR <= found.change.at <= at + ramp - 1 + NEAR
    return near and found.change.size * size > 0 and not history.changed.isdisjoint(found.members)
