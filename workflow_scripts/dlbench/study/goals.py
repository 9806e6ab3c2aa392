"""What runs must reach: scores and metrics of a learning gate, and intervals that end repeats.

Repeats go on until a combination's throughput, or another metric, is known well enough:

    repeats: {target_interval: 0.01, min: 3, max: 10}
    repeats: {target_interval: 0.01, min: 3, max: 10, metric: busbw_gb_per_s}

All `max` repeats are runs of the study. A repeat above `min` waits for those before it, and is
recorded as skipped if their interval is narrow enough already or if none of them completed. So
nothing is trained twice when the target changes: a narrower one only trains further repeats.

Intervals are those of dlbench/analysis/estimates.py: Student's t on logarithms, 95 %. Because
repeats stop at the first narrow interval, the intervals cover somewhat less than 95 %
(tests/unit/study/test_goals.py measures by how much).

Runs inside images too, so it needs the standard library only.
"""

from dataclasses import dataclass
from typing import Any

from dlbench.log.metrics import LOWER, NEITHER

REACHED = "reached"
METRICS = "metrics"  # the key with bounds of metrics that the run's program names
AT_MOST = ("perplexity", "final_loss")  # the lower, the better


def gate(must_reach: dict[str, float] | None, summary: dict[str, Any]) -> str | None:
    """Whether a run reached its learning gate; None if it has none.

    >>> gate({"top1": 0.9}, {"top1": 0.95}), gate({"perplexity": 120}, {"perplexity": 300.0})
    ('reached', 'missed: perplexity 300, expected at most 120')

    Args:
        must_reach: {score: its minimum; for those in AT_MOST its maximum}; of METRICS the same for
            metrics, of which a lower one may be better.
        summary: of the run's record.
    """
    if not must_reach:
        return None
    bounds = {name: bound for name, bound in must_reach.items() if name != METRICS}
    missed = _missed_metrics(must_reach.get(METRICS, {}), summary.get(METRICS, []))
    for name, bound in bounds.items():
        score = summary.get(name)
        at_most = name in AT_MOST
        if score is None or not (score <= bound if at_most else score >= bound):
            shown = f"{name} not evaluated" if score is None else f"{name} {score:.4g}"
            missed.append(f"{shown}, expected at {'most' if at_most else 'least'} {bound:g}")
    return f"missed: {'; '.join(missed)}" if missed else REACHED


def _missed_metrics(bounds, metrics):
    by_name = {metric["name"]: metric for metric in metrics}
    missed = []
    for name, bound in bounds.items():
        value, better = (by_name.get(name, {}).get(key) for key in ("value", "better"))
        at_most = better == LOWER
        if value is None:
            missed.append(f"the program gave no {name}")
        elif better == NEITHER:
            missed.append(f"{name} {value:.4g}: whether more is better is not known")
        elif value > bound if at_most else value < bound:
            expected = f"at {'most' if at_most else 'least'} {bound:g}"
            missed.append(f"{name} {value:.4g}, expected {expected}")
    return missed


def describe_miss(must_reach: dict[str, float] | None, summary: dict[str, Any]) -> str:
    """By how much a run missed its learning gate; "" if it did not."""
    judged = gate(must_reach, summary)
    return judged if judged and judged != REACHED else ""


THROUGHPUT = "images_per_second"
# Student's t, 97.5 % quantile, for 1 to 30 degrees of freedom; the tests compare them with SciPy's.
T_975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """Stop repeating at a relative half width of `interval`, after at least `min_repeats` runs.

    The interval is that of a metric of the runs, throughput if no other is given.
    """

    interval: float
    min_repeats: int
    metric: str = THROUGHPUT


def read_repeats(repeats: int | dict[str, Any]) -> tuple[int, Target | None]:
    """(how many runs a combination has at most, its Target or None) from the config's `repeats`."""
    if isinstance(repeats, int):
        return repeats, None
    metric = repeats.get("metric", THROUGHPUT)
    return repeats["max"], Target(repeats["target_interval"], repeats["min"], metric)
