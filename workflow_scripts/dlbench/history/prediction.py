"""Predict the mean of a new session of a condition from the means of sessions before it.

The interval is the level, plus or minus t of k - 1 degrees of freedom times s sqrt(1 + 1 / k), s
the standard deviation of the k means of logarithms (G. J. Hahn, W. Q. Meeker, Statistical
Intervals, 1991, section 4.8). So s has the scatter between sessions and that of repeats; where the
new session has another number of repeats, it is corrected by the scatter of repeats.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

ALPHA, CONFIDENCE = 0.05, 0.95
SIZES = (0.01, 0.02, 0.05)  # of losses of which the power is stated
RESOLUTION = 1e-9  # equal values differ by rounding


@dataclass(frozen=True)
class Prediction:
    """What the mean of the logarithm of a new session is expected to be.

    Attributes:
        level: of the base; `error`: standard error of the difference of a new mean from it.
        freedom: degrees of freedom of the error.
        least: how many errors past sessions were off: nearer means prove nothing.
    """

    level: float
    error: float
    freedom: int
    least: float = 0.0

    def p(self, mean: float) -> float:
        """The probability of a mean as far off, or farther, if nothing changed."""
        return 2 * float(special.stdtr(self.freedom, -abs(mean - self.level) / self.error))

    def interval(self) -> tuple[float, float]:
        half = float(special.stdtrit(self.freedom, 0.5 + CONFIDENCE / 2)) * self.error
        return self.level - half, self.level + half

    def power(self, size: float, least: float, family: int) -> float:
        """The chance that a loss of a size, as a share, fails among so many conditions."""
        critical = float(special.stdtrit(self.freedom, 1 - ALPHA / 2 / family))
        critical = max(critical, self.least, -math.log1p(-least) / self.error)
        shift = -math.log1p(-size) / self.error
        return 1 - float(special.nctdtr(self.freedom, shift, critical))


def predict(
    means: np.ndarray,
    counts: np.ndarray,
    variance: float,
    new_count: int,
    of_one: tuple[float, float] | None,
) -> Prediction:
    """Predict the mean of a new session from those of others.

    Args:
        means: of logarithms, one a session (at least two); `counts`: of their runs.
        variance: of the logarithms of repeats; nan: not known.
        new_count: runs of the new session.
        of_one: (mean, runs) of the session that is the level, which may be an older one; None: the
            level is the mean of all.
    """
    count = len(means)
    scatter = float(np.var(means, ddof=1))
    usual = float(np.mean(1 / counts))

    def of_session(runs):
        """The variance of the mean of a session with so many runs."""
        if math.isnan(variance):
            return scatter
        return max(scatter + variance * (1 / runs - usual), variance / runs)

    if of_one is None:
        level, of_level = float(np.mean(means)), scatter / count
    else:
        level, of_level = of_one[0], of_session(of_one[1])
    error = math.sqrt(of_session(new_count) + of_level)
    return Prediction(level, max(error, RESOLUTION), count - 1)


def past_deviations(means: np.ndarray, clipped: np.ndarray) -> np.ndarray:
    """How many errors each session was off what the others predict; these without outliers."""
    others, centre = len(means) - 1, clipped.mean()
    level = (centre - clipped) / others  # of the others, from the centre of all
    squares = np.square(clipped - centre)
    variances = (squares.sum() - squares - others * level**2) / (others - 1)
    errors = np.sqrt(np.maximum(variances, 0.0) * (1 + 1 / others))
    return abs(means - centre - level) / np.maximum(errors, RESOLUTION)


def exceeded(farthest: Iterable[float], predictions: Sequence[Prediction]) -> float:
    """What at most ALPHA of past sessions were beyond, by the farthest condition of each.

    If all but one are as these predictions of conditions have it, that one had a cause of its own.
    """
    ordered = sorted(farthest)
    freedom = min(one.freedom for one in predictions)
    usual = special.stdtrit(freedom, 1 - ALPHA / 2 / len(predictions) / len(ordered))
    if ordered[-2] <= usual:
        return ordered[-2]
    return ordered[-max(1, int(ALPHA * (len(ordered) + 1)))]


def variance_of_repeats(scatters: np.ndarray, counts: np.ndarray) -> float:
    """The variance of repeats, pooled over sessions; nan if each has one run.

    Args:
        scatters: standard deviations of logarithms, one a session; `counts`: of their runs.
    """
    freedom = np.where(np.isfinite(scatters), counts - 1, 0.0)
    squares = np.square(np.nan_to_num(scatters))
    return float(freedom @ squares / freedom.sum()) if freedom.sum() > 0 else math.nan
