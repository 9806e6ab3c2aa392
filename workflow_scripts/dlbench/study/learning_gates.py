"""Learning gates: the scores that a run must reach. They are not fields of the run."""

from typing import Any

REACHED = "reached"
AT_MOST = ("perplexity", "final_loss")  # the lower, the better


def gate(must_reach: dict[str, float] | None, summary: dict[str, Any]) -> str | None:
    """Whether a run reached its learning gate; None if it has none.

    >>> gate({"top1": 0.9}, {"top1": 0.95}), gate({"perplexity": 120}, {"perplexity": 300.0})
    ('reached', 'missed: perplexity 300, expected at most 120')

    Args:
        must_reach: {score: its minimum; for those in AT_MOST its maximum}.
        summary: of the run's record.
    """
    if not must_reach:
        return None
    missed = []
    for name, bound in must_reach.items():
        score = summary.get(name)
        at_most = name in AT_MOST
        if score is None or not (score <= bound if at_most else score >= bound):
            shown = f"{name} not evaluated" if score is None else f"{name} {score:.4g}"
            missed.append(f"{shown}, expected at {'most' if at_most else 'least'} {bound:g}")
    return f"missed: {'; '.join(missed)}" if missed else REACHED


def describe_miss(must_reach: dict[str, float] | None, summary: dict[str, Any]) -> str:
    """By how much a run missed its learning gate; "" if it did not."""
    judged = gate(must_reach, summary)
    return judged if judged and judged != REACHED else ""
