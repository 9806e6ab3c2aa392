"""What ratios across sessions are worth: coverage, false verdicts and power in simulated studies.

A cell is a drift between two sessions, a scatter of runs, a number of repeats and what was measured
in both (tests/support/comparisons/simulated_drift.py). Printed are, for docs/methodology.md,
- coverage: the share of 95 % intervals with the truth in them, whether or not a comparison is
  allowed;
- false verdicts: the share of studies in which a `slower`, `faster` or `equivalent` is shown that
  is not true, and that of the studies whose comparison is allowed alone; the worse of two truths,
  no difference and one of the margin;
- power: the share of studies whose comparison is allowed, and that in which a true difference of
  5 % is shown;
- repeats: the share of studies in one session in which as many repeats as `repeats_needed` says
  show a difference, and equivalence, where its power is 80 %; with standard errors.
The target: no cell beyond 92 to 97 % or 6 % by more than three standard errors of the simulation.
"""

import itertools
import math

import numpy as np
from scipy import optimize, stats

from dlbench.analysis import judge
from support.comparisons.simulated_drift import MARGIN, SHARED, drawn, outcome

from . import measuring

DRIFTS, SCATTERS, REPEATS = (0, 0.01, 0.03, 0.1), (0.005, 0.01, 0.02, 0.03), (3, 5, 10)
LEAST, MOST, MAX_FALSE = 0.92, 0.97, 0.06


def main():
    parser = measuring.parser(__doc__)
    parser.add_argument("--studies", type=int, default=5000)
    args = parser.parse_args()
    studies = args.studies
    chance = np.random.default_rng(18)
    print("shared   drift  scatter  repeats  covered  false  if allowed  allowed  5 % found")
    covers, falses, beyond = [], [], 0
    for cell in itertools.product(SHARED, DRIFTS, SCATTERS, REPEATS):
        shared, drift, scatter, repeats = cell
        found = {
            truth: outcome(
                drawn(chance, studies, shared, repeats, scatter, drift, truth), shared, truth
            )
            for truth in (0.0, math.log1p(MARGIN), math.log1p(0.05))
        }
        covered = np.mean([one["covered"] for one in found.values()])
        worst = max(list(found.values())[:2], key=lambda one: one["false"])
        told = found[math.log1p(0.05)]
        out = _beyond(covered, 3 * studies, LEAST, MOST)
        out |= _beyond(worst["false"], studies, 0, MAX_FALSE)
        beyond += out
        covers.append(covered)
        falses.append(worst["false"])
        print(
            f"{shared:8} {drift:5.0%} {scatter:8.1%} {repeats:8d} {covered:8.1%} "
            f"{worst['false']:6.1%} {worst['false_if_allowed']:11.1%} {told['allowed']:8.1%} "
            f"{told['found']:10.1%}{'  beyond' if out else ''}"
        )
    _print_powers(chance, 20 * studies)
    figures, cells = measuring.Figures(args.json), f"{len(covers)} kinds of studies"
    figures.add(f"cells beyond their bounds, of {cells}", beyond, at_most=0)
    figures.add(f"least share of 95 % intervals with the truth in them, of {cells}", min(covers))
    figures.add(f"most share of 95 % intervals with the truth in them, of {cells}", max(covers))
    figures.add(f"most share of studies with a false verdict, of {cells}", max(falses))


def _print_powers(chance, studies, scatter=0.01):
    print("repeats  difference found  equivalence shown  standard error")
    for repeats in (3, 4, 5, 8):
        effect, margin = (
            optimize.brentq(_beyond_power, 0.001, 0.2, args=(power, repeats, scatter))
            for power in (judge.power_to_differ, judge.power)
        )
        a, b = chance.normal(0, scatter, (2, studies, repeats))
        found = stats.ttest_ind(a + effect, b, axis=1, equal_var=False).pvalue < judge.ALPHA
        ends = stats.ttest_ind(a, b, axis=1, equal_var=False).confidence_interval(0.9)
        shown = np.maximum(-ends.low, ends.high) < math.log1p(margin)
        error = math.sqrt(0.16 / studies)
        print(f"{repeats:7d} {found.mean():17.1%} {shown.mean():18.1%} {error:15.2%}")


def _beyond_power(size, power, repeats, scatter):
    return power(repeats, scatter, size) - judge.POWER


def _beyond(share, studies, least, most):
    """Whether a share is beyond its bounds by more than the simulation's own uncertainty."""
    error = 3 * math.sqrt(max(share * (1 - share), 1e-4) / studies)
    return share + error < least or share - error > most


if __name__ == "__main__":
    main()
