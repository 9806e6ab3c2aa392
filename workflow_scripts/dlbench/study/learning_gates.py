"""Learning gates: the scores and metrics that a run must reach. They are not fields of the run."""

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
