"""The one judge of differences: tests, corrections over a family, verdicts, repeats that decide.

Conditions, campaigns, sessions (drift, the gate of a history) and nodes are compared by tests of a
Difference of logarithms. Two conditions are compared by two of them (D. J. Schuirmann, J.
Pharmacokinet. Biopharm. 15, 1987, 657-680): that they differ by less than a margin (two one-sided
tests, TOST), and that they differ at all. The margin is symmetric on the logarithm, from
1 / (1 + margin) to 1 + margin, so that exchanging a condition and its base exchanges slower and
faster and nothing else; at 1 % the lower end is -0.99 %. A third test is that one is below, or
above, the margin.
"""

import bisect
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from dlbench.analysis.estimates import RESOLUTION, Difference
from dlbench.tables.cells import Row
from dlbench.tables.metrics import THROUGHPUT, Metric

ALPHA = 0.05  # of wrong verdicts of one kind, in a family of comparisons
POWER = 0.8  # the chance of showing equivalence at which repeats suffice
MIN_RUNS = 3  # of each condition, for a verdict
MAX_REPEATS = 1000  # stands for any larger number of repeats needed, too
EQUIVALENT, SLOWER, FASTER, UNDECIDED = "equivalent", "slower", "faster", "undecided"
TOO_FEW_RUNS = "too few runs"
NUMBERS = (
    *("ratio", "ci90_low", "ci90_high", "ci95_low", "ci95_high", "scatter"),
    *("p_tost", "p_difference", "p_tost_raw", "p_difference_raw", "family", "repeats_needed"),
)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A condition against its base: the ratio of a metric, tested in a family of comparisons.

    Intervals are those of this comparison alone, as ratios; nan where a side has one run. Without
    `enough` runs nothing is tested and all p are nan.

    Attributes:
        p_tost: that the difference is within the margin; p_difference: that there is one;
            p_below, p_above: that the ratio is beyond that end of the margin. All are adjusted for
            the comparisons of the family, those before it end in _raw.
        family: how many comparisons were tested together.
    """

    difference: Difference
    margin: float
    metric: Metric
    enough: bool
    family: int
    ratio: float
    ci90_low: float
    ci90_high: float
    ci95_low: float
    ci95_high: float
    p_tost_raw: float
    p_difference_raw: float
    p_tost: float
    p_difference: float
    p_below: float
    p_above: float

    @property
    def scatter(self) -> float:
        """Standard deviation of the logarithms, about the coefficient of variation.

        Pooled over both sides; nan where no side has two runs.
        """
        return self.difference.scatter

    @property
    def verdict(self) -> str:
        """The verdict by the adjusted p.

        A difference that exists but is shown to be smaller than the margin is `equivalent`. In a
        family of one that is the 90 % interval inside the margin, and `slower` or `faster` (or the
        words of another metric) the 95 % interval without 1.
        """
        if not self.enough:
            return TOO_FEW_RUNS
        if self.p_tost < ALPHA:
            return EQUIVALENT
        if self.p_difference < ALPHA:
            return self.metric.verdict(self.ratio)
        return UNDECIDED

    @property
    def beyond(self) -> str:
        """The metric's word for a ratio that is shown to be beyond the margin; else ""."""
        room, mean = np.log1p(self.margin), self.difference.mean
        below = self.p_below < ALPHA and mean < -room
        above = self.p_above < ALPHA and mean > room
        return self.metric.verdict(self.ratio) if below or above else ""

    @property
    def repeats_needed(self) -> int:
        """Runs of each condition that give a verdict with POWER.

        Where the ratio is within the margin, they show equivalence if there is no difference;
        else they show a difference as large as the one that was found. They are for the scatter
        that was found, itself an estimate, and for the level that suffices in the family whatever
        the other comparisons show. MAX_REPEATS stands for more, too; too few runs for a verdict
        need MIN_RUNS.
        """
        if not self.enough:
            return MIN_RUNS
        alpha, difference = ALPHA / self.family, abs(np.log(self.ratio))
        if difference > np.log1p(self.margin):
            return _fewest_repeats(lambda n: power_to_differ(n, self.scatter, difference, alpha))
        return repeats_needed(self.scatter, self.margin, alpha)

    @property
    def columns(self) -> Row:
        """NUMBERS for a table; what is not known is None."""
        numbers = {name: getattr(self, name) for name in NUMBERS}
        return {name: None if np.isnan(number) else number for name, number in numbers.items()}


def judge(
    differences: Sequence[Difference],
    margin: float,
    metrics: Sequence[Metric] | None = None,
    least_runs: int = MIN_RUNS,
    one_sided: bool = False,
) -> list[Judged]:
    """Judge the differences of one family: their p are adjusted for how many there are.

    Holm's correction for each of the tests, so that in the whole family the chance of any
    `equivalent` at a difference of the margin or more is at most 5 %, and so is that of any
    `slower` or `faster` at none. Verdicts follow; intervals stay those of each alone. What
    has too few runs is no test and is not counted.

    Args:
        margin: ratios from 1 / (1 + margin) to 1 + margin count as equivalent.
        metrics: what each is a difference of; None: throughput.
        least_runs: of either side, for a test.
        one_sided: whether the tests of being below and above the margin are one-sided: where it is
            asked of one side alone, as of nodes that are slower.
    """
    room = float(np.log1p(margin))
    enough = [min(difference.runs) >= least_runs for difference in differences]
    beyond = Difference.chance if one_sided else Difference.chance_of_either
    tests: dict[str, Callable[[Difference], float]] = {
        "p_tost": lambda d: d.chance(room - abs(d.mean)),
        "p_difference": lambda d: d.chance_of_either(d.mean),
        "p_below": lambda d: beyond(d, -d.mean - room),
        "p_above": lambda d: beyond(d, d.mean - room),
    }
    raw = {
        name: [
            test(difference) if known else np.nan
            for difference, known in zip(differences, enough, strict=True)
        ]
        for name, test in tests.items()
    }
    adjusted = {name: holm(p_values) for name, p_values in raw.items()}
    family = max(1, int(np.sum(~np.isnan(raw["p_tost"]))))
    return [
        Judged(
            difference=difference,
            margin=margin,
            metric=metrics[index] if metrics else THROUGHPUT,
            enough=enough[index],
            family=family,
            ratio=float(np.exp(difference.mean)),
            **_ends(difference),
            p_tost_raw=raw["p_tost"][index],
            p_difference_raw=raw["p_difference"][index],
            **{name: p_values[index] for name, p_values in adjusted.items()},
        )
        for index, difference in enumerate(differences)
    ]


def _ends(difference):
    """The ends of its intervals, as ratios."""
    of90, of95 = np.exp([difference.interval(confidence) for confidence in (0.9, 0.95)]).tolist()
    return dict(zip(("ci90_low", "ci90_high", "ci95_low", "ci95_high"), of90 + of95, strict=True))


def holm(p_values: Sequence[float]) -> list[float]:
    """p adjusted for one another, in their order; those that are nan are no tests.

    S. Holm, Scand. J. Statist. 6, 1979, 65-70.

    >>> holm([0.01, 0.04, 0.03, float("nan")])
    [0.03, 0.06, 0.06, nan]
    """
    raw = np.asarray(p_values, dtype=float)
    tests = np.count_nonzero(~np.isnan(raw))
    order = np.argsort(raw)[:tests]  # which has nan last
    adjusted = np.full_like(raw, np.nan)
    steps = np.maximum.accumulate(np.arange(tests, 0, -1) * raw[order])
    adjusted[order] = np.minimum(1, steps)
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
