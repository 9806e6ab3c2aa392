"""Laws of scaling, fitted to the throughputs of runs on several numbers of devices.

- Amdahl (G. M. Amdahl, AFIPS Conf. Proc. 30, 1967, 483-485): of a fixed amount of work the
  share s is not spread, so n devices are n / (1 + s (n - 1)) times as fast as one.
- The universal scalability law (N. J. Gunther, Guerrilla Capacity Planning, Springer 2007,
  ch. 4): n / (1 + alpha (n - 1) + beta n (n - 1)); alpha is contention, beta the cost of
  keeping all pairs coherent, by which throughput falls again beyond sqrt((1 - alpha) / beta).

Both are fitted to the logarithms of throughputs by least squares, the unit being the run; the
throughput of one device is a parameter, so that no point is taken for exact. Intervals are
Student's t with the errors of the fit, and hold if the law does. Parameters may be slightly
negative: that is a speedup above the number of devices.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from scipy import special

from dlbench.analysis.estimates import CONFIDENCE, Estimate

MIN_DEVICE_COUNTS = 5


def amdahl(devices: Sequence[int], throughputs: Sequence[float]) -> Estimate | None:
    """Fit Amdahl's law: the serial share, or None if the fit fails.

    Args:
        devices, throughputs: of each run.
    """
    most = np.max(devices)
    parameters = _fit(lambda n, s: s * (n - 1), devices, throughputs, [0.5 / (most - 1)])
    return parameters and parameters[0]


def usl(devices: Sequence[int], throughputs: Sequence[float]) -> list[Estimate] | None:
    """Fit the universal scalability law: [alpha, beta], or None if the fit fails."""
    most = np.max(devices)
    lowest = [0.45 / (most - 1), 0.45 / (most * (most - 1))]
    return _fit(lambda n, a, b: a * (n - 1) + b * n * (n - 1), devices, throughputs, lowest)


def why_no_fit(devices: Sequence[int]) -> str:
    """Why no law is fitted to runs on these numbers of devices; "" if one is."""
    count = len(set(devices))
    if count >= MIN_DEVICE_COUNTS:
        return ""
    return f"needs {MIN_DEVICE_COUNTS} numbers of devices, there {_are(count)}"


def _are(count):
    return "is 1" if count == 1 else f"are {count}"


def _fit(loss, devices, throughputs, lowest):
    """Estimates of the parameters of n / (1 + loss(n, ...)).

    Args:
        lowest: how far each may fall below 0; 1 + loss stays positive within.
    """
    # Imported late: few studies have as many devices.
    from scipy import optimize

    n, logs = np.asarray(devices, dtype=float), np.log(np.asarray(throughputs, dtype=float))
    freedom = len(n) - len(lowest) - 1
    if freedom < 1:
        return None

    def law(n, scale, *parameters):
        return scale + np.log(n) - np.log1p(loss(n, *parameters))

    lower = [-np.inf, *(-value for value in lowest)]
    start = [float(np.max(logs - np.log(n))), *([0.01] + [0.0] * (len(lowest) - 1))]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optimize.OptimizeWarning)
            best, covariance = optimize.curve_fit(
                law,
                n,
                logs,
                p0=start,
                bounds=(lower, np.inf),
                x_scale=[1.0, *lowest],
                ftol=1e-12,
                xtol=1e-12,
                gtol=1e-12,
            )
    except RuntimeError:
        return None  # it did not converge
    half = special.stdtrit(freedom, 0.5 + CONFIDENCE / 2) * np.sqrt(np.diag(covariance))
    return [
        Estimate(float(value), *_interval(value, width, bound), len(n))
        for value, width, bound in list(zip(best, half, lower, strict=True))[1:]
    ]


def _interval(value, half, bound):
    """The ends of the 95 % interval; nan if the best value is the lowest that is allowed."""
    if not np.isfinite(half) or value <= bound + 1e-6 * abs(bound):
        return np.nan, np.nan
    return float(value - half), float(value + half)
