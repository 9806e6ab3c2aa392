"""Studies with known drift between two sessions, simulated thousands at once.

A base was measured in the first session, a condition in the second; in both were measured: the base
itself, another condition, or four others. The formulas are those of dlbench/analysis/drift.py and
dlbench/analysis/estimates.py, written again for all studies at once.
"""

import math

import numpy as np
from scipy import special

from dlbench.analysis import estimates, judge

# Groups: the condition in the second session, the base in the first, then conditions in both.
SHARED = {"base": 0, "another": 1, "four": 4}
MARGIN = 0.01


def drawn(chance, studies, shared, repeats, scatter, drift, difference):
    """Logarithms of throughput of all groups: shape (groups, studies, repeats).

    Args:
        shared: a key of SHARED.
        drift: of the second session, as a share; difference: of condition and base, a logarithm.
    """
    pairs = SHARED[shared] or 1
    logs = chance.normal(0, scatter, (2 + 2 * pairs, studies, repeats))
    logs[0] += difference + math.log1p(drift)
    if not SHARED[shared]:
        logs[2] = logs[1]  # what is shared was measured in the first session as the base
    logs[3::2] += math.log1p(drift)
    return logs


def combinations(shared):
    """Coefficients over the groups: of the corrected difference, and of the drift."""
    pairs = SHARED[shared] or 1
    drift = np.array([0.0, 0.0, *([-1 / pairs, 1 / pairs] * pairs)])
    corrected = np.array([1.0, -1.0, *([0.0] * 2 * pairs)]) - drift
    if not SHARED[shared]:  # one group: what is at one place of the two counts for both
        corrected[2] += corrected[1]
        corrected[1] = 0
    return corrected, drift


def combined(logs, coefficients):
    """Means, standard errors and Satterthwaite's degrees of freedom, one a study."""
    repeats = logs.shape[2]
    variances = coefficients[:, None] ** 2 * logs.var(axis=2, ddof=1) / repeats
    total = variances.sum(axis=0)
    freedom = total**2 / (variances**2 / (repeats - 1)).sum(axis=0)
    return coefficients @ logs.mean(axis=2), np.sqrt(total), freedom


def judged(mean, error, freedom):
    """(p of TOST against the margin, p of no difference), one a study."""
    distance = abs(mean)
    p_tost = special.stdtr(freedom, (distance - math.log1p(MARGIN)) / error)
    return p_tost, np.minimum(1, 2 * special.stdtr(freedom, -distance / error))


def outcome(logs, shared, difference):
    """Shares of studies: `covered`, `allowed`, `false` verdicts shown, differences `found`.

    `false_if_allowed` is of those allowed alone, nan where these are fewer than 100.
    """
    corrected, drift = (combined(logs, k) for k in combinations(shared))
    allowed = judged(*drift)[0] < judge.ALPHA
    half = special.stdtrit(corrected[2], 0.5 + estimates.CONFIDENCE / 2) * corrected[1]
    p_tost, p_difference = judged(*corrected)
    equivalent = p_tost < judge.ALPHA
    differs = ~equivalent & (p_difference < judge.ALPHA)
    # A difference of the margin is not within it; rounding must not say otherwise.
    wrong_side = (np.sign(corrected[0]) != np.sign(difference)) if difference else True
    false = (equivalent & (abs(difference) >= math.log1p(MARGIN) - 1e-12)) | (differs & wrong_side)
    return {
        "covered": np.mean(abs(corrected[0] - difference) <= half),
        "allowed": np.mean(allowed),
        "false": np.mean(false & allowed),
        "false_if_allowed": np.mean(false[allowed]) if allowed.sum() >= 100 else math.nan,
        "found": np.mean(differs & allowed),
    }
