"""Whether two conditions are equivalent, or one is faster: tests, verdicts and repeats needed.

Two conditions are compared by two tests (D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15,
1987, 657-680): that they differ by less than a margin (two one-sided tests, TOST), and that
they differ at all. The margin is symmetric on the logarithm, from 1 / (1 + margin) to
1 + margin, so that exchanging a condition and its base exchanges slower and faster and
nothing else; at 1 % the lower end is -0.99 %.
"""

import bisect
import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from dlbench.analysis.estimates import RESOLUTION, Difference
from dlbench.tables.metrics import THROUGHPUT, Metric

ALPHA = 0.05  # of wrong verdicts of one kind, in a family of comparisons
POWER = 0.8  # the chance of showing equivalence at which repeats suffice
MIN_RUNS = 3  # of each condition, for a verdict
MAX_REPEATS = 1000  # stands for any larger number of repeats needed, too
EQUIVALENT, SLOWER, FASTER, UNDECIDED = "equivalent", "slower", "faster", "undecided"
TOO_FEW_RUNS = "too few runs"


@dataclass(frozen=True)
class Comparison:
    """A condition against its base: the ratio of a metric, throughput if no other is given.

    Intervals are Welch's, of this comparison alone, as ratios; nan where a side has one run.
    Where a side has fewer than MIN_RUNS nothing is tested and all p are nan.

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
    metric: Metric = THROUGHPUT

    @property
    def verdict(self) -> str:
        """The verdict by the adjusted p.

        A difference that exists but is shown to be smaller than the margin is `equivalent`. In a
        family of one that is the 90 % interval inside the margin, and `slower` or `faster` (or the
        words of another metric) the 95 % interval without 1.
        """
        if min(self.n_a, self.n_b) < MIN_RUNS:
            return TOO_FEW_RUNS
        if self.p_tost < ALPHA:
            return EQUIVALENT
        if self.p_difference < ALPHA:
            return self.metric.verdict(self.ratio)
        return UNDECIDED

    @property
    def repeats_needed(self) -> int:
        """Runs of each condition that give a verdict with POWER.

        Where the ratio is within the margin, they show equivalence if there is no difference;
        else they show a difference as large as the one that was found. They are for the scatter
        that was found, itself an estimate, and for the level that suffices in the family whatever
        the other comparisons show. MAX_REPEATS stands for more, too; too few runs for a verdict
        need MIN_RUNS.
        """
        if min(self.n_a, self.n_b) < MIN_RUNS:
            return MIN_RUNS
        alpha, difference = ALPHA / self.family, abs(np.log(self.ratio))
        if difference > np.log1p(self.margin):
            return _fewest_repeats(lambda n: power_to_differ(n, self.scatter, difference, alpha))
        return repeats_needed(self.scatter, self.margin, alpha)


def compare(
    values: Sequence[float], base: Sequence[float], margin: float, metric: Metric = THROUGHPUT
) -> Comparison:
    """Compare a metric of the runs of a condition with that of its base.

    Args:
        values, base: one number for each run.
        margin: ratios from 1 / (1 + margin) to 1 + margin count as equivalent.

    Raises:
        ValueError: one side has no values, or one that is not positive.
    """
    return judge(Difference.of(values, base), margin, metric)


def judge(difference: Difference, margin: float, metric: Metric = THROUGHPUT) -> Comparison:
    """The Comparison that follows from a Difference of the logarithms of a metric."""
    intervals = np.exp([difference.interval(confidence) for confidence in (0.9, 0.95)])
    tested = min(difference.runs) >= MIN_RUNS
    p_tost, p_difference = difference.tests(np.log1p(margin)) if tested else (np.nan, np.nan)
    (ci90_low, ci90_high), (ci95_low, ci95_high) = intervals.tolist()
    return Comparison(
        ratio=float(np.exp(difference.mean)),
        ci90_low=ci90_low,
        ci90_high=ci90_high,
        ci95_low=ci95_low,
        ci95_high=ci95_high,
        margin=margin,
        scatter=difference.scatter,
        p_tost_raw=p_tost,
        p_difference_raw=p_difference,
        p_tost=p_tost,
        p_difference=p_difference,
        n_a=difference.runs[0],
        n_b=difference.runs[1],
        metric=metric,
    )


def adjust(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons of one family, their p adjusted for how many there are.

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
    adjusted_comparisons = []
    for comparison in comparisons:
        p = (np.nan, np.nan) if np.isnan(comparison.p_tost_raw) else next(adjusted)
        adjusted_comparisons.append(
            dataclasses.replace(
                comparison, p_tost=p[0], p_difference=p[1], family=max(1, len(tested))
            )
        )
    return adjusted_comparisons


def holm(p_values: Sequence[float]) -> list[float]:
    """p adjusted for one another, in their order (S. Holm, Scand. J. Statist. 6, 1979, 65-70).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p_values, dtype=float)
    order = np.argsort(raw)
    factors = np.arange(len(raw), 0, -1)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(factors * raw[order]))
    return adjusted.tolist()


def repeats_needed(scatter: float, margin: float, alpha: float = ALPHA) -> int:
    """Runs of each of two conditions at which `power` reaches POWER, up to MAX_REPEATS."""
    return _fewest_repeats(lambda repeats: power(repeats, scatter, margin, alpha))


def _fewest_repeats(power_of):
    return MIN_RUNS + bisect.bisect_left(range(MIN_RUNS, MAX_REPEATS), POWER, key=power_of)


def power_to_differ(repeats: int, scatter: float, difference: float, alpha: float = ALPHA) -> float:
    """The chance that Welch's two-sided test shows a difference of two means of logarithms.

    Student's t has the noncentral distribution then (J. Cohen, Statistical Power Analysis for the
    Behavioral Sciences, 1988, chapter 2). Arguments as in `power`.
    """
    size = difference / max(scatter * np.sqrt(2 / repeats), RESOLUTION)
    limits = special.stdtrit(_freedoms(repeats), 1 - alpha / 2)
    # Where the distribution is too far out to be computed, the chance is 1.
    return float(1 - np.mean(special.nctdtr(2 * (repeats - 1), min(size, 30.0), limits)))


def power(repeats: int, scatter: float, margin: float, alpha: float = ALPHA) -> float:
    """The chance that TOST shows equivalence where there is no difference.

    Means of n runs differ by a normal variable d of standard error e = scatter sqrt(2 / n), of
    which the runs give the estimate s = e sqrt(X / f), X chi-squared with f = 2 (n - 1) degrees
    of freedom, independent of d. Shown it is where |d| < log(1 + margin) - t s, t the quantile
    1 - alpha of Student's t with Welch's degrees of freedom; its chance is averaged over both.
    (K. F. Phillips, J. Pharmacokinet. Biopharm. 18, 1990, 137-144, for 2 (n - 1) degrees.)

    Args:
        repeats: n, runs of each condition.
        scatter: standard deviation of the logarithms of either condition.
        alpha: level of each of the two tests.
    """
    error = max(scatter * np.sqrt(2 / repeats), RESOLUTION)
    room = np.log1p(margin) / error - _estimated_over_true(repeats, alpha)
    return float(np.mean(np.maximum(0, 2 * special.ndtr(room) - 1)))


@functools.lru_cache(maxsize=256)
def _estimated_over_true(repeats, alpha):
    """t times s / e of `power`, at evenly spaced chances of s and of the degrees of freedom."""
    freedom = 2 * (repeats - 1)
    squares = special.chdtri(freedom, (np.arange(200) + 0.5) / 200)
    return np.outer(special.stdtrit(_freedoms(repeats), 1 - alpha), np.sqrt(squares / freedom))


def _freedoms(repeats):
    """Welch's degrees of freedom at evenly spaced chances.

    The share of one side in the sum of both estimated variances, which have equal expectations,
    is beta-distributed, and independent of the sum.
    """
    half = (repeats - 1) / 2
    share = special.betaincinv(half, half, (np.arange(30) + 0.5) / 60)  # the rest mirrors these
    return (repeats - 1) / (share**2 + (1 - share) ** 2)
