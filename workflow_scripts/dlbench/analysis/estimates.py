"""Means and ratios of throughputs over repeats, with their intervals.

The unit is the run, never the step, and everything is done on the logarithm of the throughput:
ratios are what is compared. Intervals are Student's t for one mean and Welch's t for a ratio of
two. On logarithms they cover 95 % of truths at five repeats with 2 % scatter, where bootstrap
intervals of one mean cover 84 % (tests/unit/analysis/test_simulated_studies.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from dlbench.tables.cells import Row

CONFIDENCE = 0.95
# Two runs beside more: Welch's degrees of freedom follow the side that scatters by chance.
THIN = "two runs on one side: the 95 % interval of the ratio covers about 90 %"
# Standard error that rounding leaves of the logarithms of equal values.
RESOLUTION = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; low and high are nan where one run gives none."""

    value: float
    low: float
    high: float
    runs: int

    def columns(self, name: str) -> Row:
        """Its columns in a table; ends that are not known are None."""
        ends = (None if np.isnan(end) else end for end in (self.low, self.high))
        names = (f"{name}_ci95_low", f"{name}_ci95_high")
        return {name: self.value, **dict(zip(names, ends, strict=True))}

    def times(self, factor: float) -> "Estimate":
        """The same in another unit, as tokens instead of sequences."""
        return Estimate(factor * self.value, factor * self.low, factor * self.high, self.runs)


def mean(values: Sequence[float]) -> Estimate:
    """Geometric mean of positive values with Student's t interval on their logs.

    Raises ValueError: no values, or one that is not positive.
    """
    centre, half = _student(_logs(values))
    value, low, high = (float(np.exp(end)) for end in (centre, centre - half, centre + half))
    return Estimate(value, low, high, len(values))


def arithmetic_mean(values: Sequence[float]) -> Estimate:
    """Arithmetic mean with Student's t interval, for values that have no logarithms.

    >>> arithmetic_mean([-1.0, 0.0, 1.0]).value
    0.0

    Raises ValueError: no values.
    """
    numbers = np.asarray(values, dtype=float)
    if not len(numbers):
        raise ValueError("expected values, found none")
    centre, half = _student(numbers)
    return Estimate(centre, centre - half, centre + half, len(numbers))


def _student(numbers):
    """(mean, half of its interval; nan of one number)."""
    centre = float(np.mean(numbers))
    if len(numbers) < 2:
        return centre, np.nan
    error = np.std(numbers, ddof=1) / np.sqrt(len(numbers))
    return centre, float(special.stdtrit(len(numbers) - 1, 0.5 + CONFIDENCE / 2) * error)


def ratio(values: Sequence[float], base: Sequence[float]) -> Estimate:
    """Ratio of two geometric means with Welch's t interval on the logs.

    Raises ValueError: one side has no values, or one that is not positive.
    """
    return Difference.of(values, base).ratio


def is_thin(n_a: int, n_b: int) -> bool:
    """Whether a ratio's 95 % interval covers less, for its numbers of runs (see THIN).

    Two against two cover 95 to 98 %, three against ten 93 %:
    tests/unit/analysis/test_simulated_studies.py.
    """
    return min(n_a, n_b) == 2 < max(n_a, n_b)


@dataclass(frozen=True)
class Difference:
    """The difference of two means of logarithms, after Welch; nan where a side has one run.

    `mean` of them, its standard `error` with its degrees of `freedom`, the pooled `scatter`
    and the numbers of `runs`. dlbench/analysis/drift.py has one that is corrected for drift.
    """

    mean: float
    error: float
    freedom: float
    scatter: float
    runs: tuple[int, int]

    @classmethod
    def of(cls, values: Sequence[float], base: Sequence[float]) -> "Difference":
        """Of the throughputs of the runs of two conditions."""
        sides = _logs(values), _logs(base)
        runs = len(sides[0]), len(sides[1])
        mean = float(np.mean(sides[0]) - np.mean(sides[1]))
        squares = np.array([np.sum((side - np.mean(side)) ** 2) for side in sides])
        spare = np.array(runs) - 1
        scatter = float(np.sqrt(squares.sum() / spare.sum())) if spare.sum() else np.nan
        if min(runs) < 2:
            return cls(mean, np.nan, np.nan, scatter, runs)
        errors = np.maximum(squares / spare / runs, RESOLUTION**2)
        freedom = errors.sum() ** 2 / np.sum(errors**2 / spare)
        return cls(mean, float(np.sqrt(errors.sum())), float(freedom), scatter, runs)

    @property
    def ratio(self) -> Estimate:
        """The Estimate of the ratio of the two geometric means."""
        value, low, high = np.exp([self.mean, *self.interval(CONFIDENCE)]).tolist()
        return Estimate(value, low, high, min(self.runs))

    def interval(self, confidence: float) -> tuple[float, float]:
        """The ends of the interval that covers the true difference with this confidence."""
        half = special.stdtrit(self.freedom, 0.5 + confidence / 2) * self.error
        return self.mean - half, self.mean + half

    def chance(self, distance: float) -> float:
        """The chance that the mean lies so far or farther on one side of the true one."""
        return float(special.stdtr(self.freedom, -distance / self.error))

    def chance_of_either(self, distance: float) -> float:
        """The chance that the mean lies so far or farther on either side of the true one."""
        either = 2 * self.chance(abs(distance))
        return 1.0 if either > 1 else either


def _logs(values):
    values = np.asarray(values, dtype=float)
    if len(values) == 0 or not np.all(values > 0):
        raise ValueError(f"expected positive values, found {values.tolist()}")
    return np.log(values)
