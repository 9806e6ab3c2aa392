"""Means, intervals and speedups over repeats.

The unit is the run, never the step, and everything is done on the logarithm of
the throughput: ratios are what is compared. Intervals are Student's t for one
mean and Welch's t for a ratio of two; on logs they cover 95 % of truths
at five repeats with 2 % scatter, where bootstrap intervals of one mean cover 84 %
(tests/unit/house/test_simulated_studies.py).

Two conditions are compared by two tests (D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15,
1987, 657-680): that they differ by less than a margin (two one-sided tests, TOST), and that
they differ at all. The margin is symmetric on the logarithm, from 1 / (1 + margin) to
1 + margin, so that exchanging a condition and its base exchanges slower and faster and
nothing else; at 1 % the lower end is -0.99 %.
"""

import bisect
import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
from scipy import special

from dlbench.analysis import base_flags

CONFIDENCE = 0.95
ALPHA = 0.05  # of wrong verdicts of one kind, in a family of comparisons
POWER = 0.8  # the chance of showing equivalence at which repeats suffice
FEWEST_RUNS = 3  # of each condition, for a verdict
# Two runs beside more: Welch's degrees of freedom follow the side that scatters by chance.
THIN = "two runs on one side: the 95 % interval of the ratio covers about 90 %"
MOST_REPEATS = 1000  # stands for any larger number of repeats needed, too
# Standard error that rounding leaves of the logarithms of equal values.
RESOLUTION = 1e-12
EQUIVALENT, SLOWER, FASTER, UNDECIDED = "equivalent", "slower", "faster", "undecided"
TOO_FEW_RUNS = "too few runs"
# Facts in which runs must agree, beside their fields, to be of one condition.
FACTS = ("site", "device_model", "framework_version", "timing_source", "item_shape")
# Digests of what runs were on and with; a run of which they are not known is not another one.
FINGERPRINTS = ("hardware_sha256", "software_sha256")
FOUND_OUT = ("item_shape", *FINGERPRINTS)  # of a run, perhaps; unknown is no difference
# A speedup compares like with like: these must agree between a point and its base, and the
# batch per device (weak scaling) or the global batch (strong).
BASE_KEYS = (
    "model",
    "dataset",
    "data_sha256",
    "seed",
    "steps_measured",
    "precision",
    "xla",
    "mode",
    "strategy",
    "strategy_options",
    "runtime",
    "runtime_options",
    "copies_per_node",
    "framework_version",
    "environment",
    "device_model",
    "site",
    *FOUND_OUT,
)


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; low and high are nan where one run gives none."""

    value: float
    low: float
    high: float
    runs: int

    def columns(self, name):
        """It as columns of a table, absent ends as None."""
        ends = (None if np.isnan(end) else end for end in (self.low, self.high))
        names = (f"{name}_ci95_low", f"{name}_ci95_high")
        return {name: self.value, **dict(zip(names, ends, strict=True))}


def mean(values):
    """Geometric mean of positive values with Student's t interval on their logs.

    Raises:
        ValueError: no values, or one that is not positive.
    """
    logs = _logs(values)
    centre = float(np.mean(logs))
    if len(logs) < 2:
        return Estimate(float(np.exp(centre)), np.nan, np.nan, len(logs))
    error = np.std(logs, ddof=1) / np.sqrt(len(logs))
    half = special.stdtrit(len(logs) - 1, 0.5 + CONFIDENCE / 2) * error
    return Estimate(
        float(np.exp(centre)), float(np.exp(centre - half)), float(np.exp(centre + half)), len(logs)
    )


def ratio(values, base):
    """Ratio of two geometric means with Welch's t interval on the logs.

    Raises:
        ValueError: one side has no values, or one that is not positive.
    """
    return Difference.of(values, base).ratio


def is_thin(n_a, n_b):
    """Whether a ratio's interval covers less than it says, by the numbers of runs (see THIN).

    Two against two cover 95 to 98 %, three against ten 93 %:
    tests/unit/house/test_simulated_studies.py.
    """
    return min(n_a, n_b) == 2 < max(n_a, n_b)


@dataclass(frozen=True)
class Comparison:
    """A condition against its base: the ratio of their throughputs, and what follows from it.

    Intervals are Welch's, of this comparison alone, as ratios; nan where a side has one run.
    Where a side has fewer than FEWEST_RUNS nothing is tested and all p are nan.

    Attributes:
        scatter: standard deviation of the logarithms, pooled over both sides; about the
            coefficient of variation. nan where no side has two runs.
        p_tost: that the difference is within the margin; p_difference: that there is one.
            Both adjusted for the comparisons of the family, those before it end in _raw.
        family: how many comparisons were tested together.
    """

    ratio: float
    ci90_low: float
    ci90_high: float
    ci95_low: float
    ci95_high: float
    margin: float
    scatter: float
    p_tost_raw: float
    p_difference_raw: float
    p_tost: float
    p_difference: float
    n_a: int
    n_b: int
    family: int = 1

    @property
    def verdict(self):
        """What the adjusted p say.

        A difference that is there but surely smaller than the margin is `equivalent`. In a
        family of one that is the 90 % interval inside the margin, and `slower` or `faster`
        the 95 % interval without 1.
        """
        if min(self.n_a, self.n_b) < FEWEST_RUNS:
            return TOO_FEW_RUNS
        if self.p_tost < ALPHA:
            return EQUIVALENT
        if self.p_difference < ALPHA:
            return SLOWER if self.ratio < 1 else FASTER
        return UNDECIDED

    @property
    def repeats_needed(self):
        """Runs of each condition that give a verdict with POWER.

        Where the ratio is within the margin, they show equivalence if there is no difference;
        else they show a difference as large as the one that was found. They are for the scatter
        that was found, itself an estimate, and for the level that suffices in the family whatever
        the other comparisons show. MOST_REPEATS stands for more, too; too few runs for a verdict
        need FEWEST_RUNS.
        """
        if min(self.n_a, self.n_b) < FEWEST_RUNS:
            return FEWEST_RUNS
        alpha, difference = ALPHA / self.family, abs(np.log(self.ratio))
        if difference > np.log1p(self.margin):
            return _least(lambda n: power_to_differ(n, self.scatter, difference, alpha))
        return repeats_needed(self.scatter, self.margin, alpha)


def compare(values, base, margin):
    """The throughputs of the runs of one condition against those of its base.

    Args:
        values, base: throughputs, one for each run.
        margin: ratios from 1 / (1 + margin) to 1 + margin count as equivalent.

    Raises:
        ValueError: one side has no values, or one that is not positive.
    """
    return judged(Difference.of(values, base), margin)


def judged(found, margin):
    """The Comparison that follows from a Difference."""
    intervals = np.exp([found.interval(confidence) for confidence in (0.9, 0.95)])
    tested = min(found.runs) >= FEWEST_RUNS
    p_tost, p_difference = found.tests(np.log1p(margin)) if tested else (np.nan, np.nan)
    (ci90_low, ci90_high), (ci95_low, ci95_high) = intervals.tolist()
    return Comparison(
        ratio=float(np.exp(found.mean)),
        ci90_low=ci90_low,
        ci90_high=ci90_high,
        ci95_low=ci95_low,
        ci95_high=ci95_high,
        margin=margin,
        scatter=found.scatter,
        p_tost_raw=p_tost,
        p_difference_raw=p_difference,
        p_tost=p_tost,
        p_difference=p_difference,
        n_a=found.runs[0],
        n_b=found.runs[1],
    )


def together(comparisons):
    """Comparisons that are read side by side, their p adjusted for how many there are.

    Holm's correction for each of the two tests, so that in the whole family the chance of any
    `equivalent` at a difference of the margin or more is at most 5 %, and so is that of any
    `slower` or `faster` at none. Verdicts follow; intervals stay those of each alone. What
    has too few runs is no test and is not counted.
    """
    tested = [c for c in comparisons if not np.isnan(c.p_tost_raw)]
    adjusted = iter(
        zip(
            holm([c.p_tost_raw for c in tested]),
            holm([c.p_difference_raw for c in tested]),
            strict=True,
        )
    )
    made = []
    for comparison in comparisons:
        p = (np.nan, np.nan) if np.isnan(comparison.p_tost_raw) else next(adjusted)
        made.append(
            dataclasses.replace(
                comparison, p_tost=p[0], p_difference=p[1], family=max(1, len(tested))
            )
        )
    return made


def holm(p_values):
    """p adjusted for one another, in their order (S. Holm, Scand. J. Statist. 6, 1979, 65-70).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p_values = np.asarray(p_values, dtype=float)
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(factors * p_values[order]))
    return adjusted.tolist()


def repeats_needed(scatter, margin, alpha=ALPHA):
    """Runs of each of two conditions at which `power` reaches POWER, up to MOST_REPEATS."""
    return _least(lambda repeats: power(repeats, scatter, margin, alpha))


def _least(chance_of):
    return FEWEST_RUNS + bisect.bisect_left(range(FEWEST_RUNS, MOST_REPEATS), POWER, key=chance_of)


def power_to_differ(repeats, scatter, difference, alpha=ALPHA):
    """The chance that a two-sided t test shows a difference of two means of logarithms.

    Student's t has the noncentral distribution then (J. Cohen, Statistical Power Analysis for the
    Behavioral Sciences, 1988, chapter 2). Arguments as in `power`.
    """
    freedom = 2 * (repeats - 1)
    size = difference / max(scatter * np.sqrt(2 / repeats), RESOLUTION)
    limit = special.stdtrit(freedom, 1 - alpha / 2)
    # Where the distribution is too far out to be computed, the chance is 1.
    return float(1 - special.nctdtr(freedom, min(size, 30.0), limit))


def power(repeats, scatter, margin, alpha=ALPHA):
    """The chance that TOST shows equivalence where there is no difference.

    Means of n runs differ by a normal variable d of standard error e = scatter sqrt(2 / n), of
    which the runs give the estimate s = e sqrt(X / f), X chi-squared with f = 2 (n - 1) degrees
    of freedom, independent of d. Shown it is where |d| < log(1 + margin) - t s, t the quantile
    1 - alpha of Student's t; its chance given s is averaged over s. (K. F. Phillips,
    J. Pharmacokinet. Biopharm. 18, 1990, 137-144, which has the same as Owen's Q.)

    Args:
        repeats: n, runs of each condition.
        scatter: standard deviation of the logarithms of either condition.
        alpha: level of each of the two tests.
    """
    error = max(scatter * np.sqrt(2 / repeats), RESOLUTION)
    room = np.log1p(margin) / error - _found_over_true(2 * (repeats - 1), alpha)
    return float(np.mean(np.maximum(0, 2 * special.ndtr(room) - 1)))


@functools.lru_cache(maxsize=4096)
def _found_over_true(freedom, alpha):
    """t times s / e of `power`, at evenly spaced chances of s."""
    chances = (np.arange(500) + 0.5) / 500
    # chdtri takes the chance of a larger value, and the chances are symmetric: 1 - chance.
    squares = special.chdtri(freedom, 1 - chances)
    return special.stdtrit(freedom, 1 - alpha) * np.sqrt(squares / freedom)


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
    def of(cls, values, base):
        sides = _logs(values), _logs(base)
        runs = tuple(len(side) for side in sides)
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
    def ratio(self):
        """The Estimate of the ratio of the two geometric means."""
        ends = np.exp([self.mean, *self.interval(CONFIDENCE)]).tolist()
        return Estimate(*ends, min(self.runs))

    def interval(self, confidence):
        half = special.stdtrit(self.freedom, 0.5 + confidence / 2) * self.error
        return self.mean - half, self.mean + half

    def tests(self, margin):
        """(p of TOST against +-margin, p of the two-sided test of no difference)."""
        distance = abs(self.mean)
        return self._chance(margin - distance), min(1, 2 * self._chance(distance))

    def _chance(self, distance):
        """That the mean lies so far, or farther, on one side of where it truly is."""
        return float(special.stdtr(self.freedom, -distance / self.error))


def base_mismatch(row, base, fixed="batch_per_device"):
    """The names of what differs between a row and its base, of what must agree."""
    keys = [key for key in BASE_KEYS if key not in FOUND_OUT]
    found = [key for key in (*keys, fixed) if _differ(row[key], base[key])]
    both = [key for key in FOUND_OUT if row.get(key) and base.get(key)]
    found += [key for key in both if _differ(row[key], base[key])]
    return found + [base_flags.NEIGHBOURS] * is_disturbed(row, base)


def is_disturbed(*rows):
    """Whether others used more beside any of some runs than they may."""
    return any(not is_absent(row.get("disturbed")) for row in rows)


def _differ(one, other):
    """Whether two values differ; absent ones (None or nan) are equal to one another."""
    return not (one == other or (is_absent(one) and is_absent(other)))


def is_absent(value):
    """Whether a value of a table is none: None, or nan as pandas has it."""
    return value is None or value != value


def _logs(values):
    values = np.asarray(values, dtype=float)
    if len(values) == 0 or not np.all(values > 0):
        raise ValueError(f"expected positive values, found {values.tolist()}")
    return np.log(values)
