"""Two compared campaigns as plain values, for JSON, whose keys stay."""

import math
from typing import Any

from dlbench.comparison.compare_runs import Compared, Pair

NUMBERS = (
    *("ratio", "ci90_low", "ci90_high", "ci95_low", "ci95_high", "p_tost", "p_difference"),
    *("p_tost_raw", "p_difference_raw", "scatter", "family", "repeats_needed"),
)


def comparison_values(
    comparison: Compared, regressions: list[Pair] | None = None
) -> dict[str, Any]:
    """Two compared campaigns as plain values; numbers that are not known are None.

    Args:
        regressions: the pairs for which a check fails; None if nothing is checked.
    """
    failing = {id(pair) for pair in regressions or ()}
    return {
        "metric": comparison.metric.name,
        "unit": comparison.metric.unit,
        "margin": comparison.margin,
        "a": _campaign(comparison.a),
        "b": _campaign(comparison.b),
        "joined_on": list(comparison.joined),
        "not_joined_on": list(comparison.not_joined),
        "measured_apart": comparison.measured_apart,
        "differs": {n: {"a": a, "b": b} for n, (a, b) in comparison.differs.items()},
        "combinations": [
            _pair(pair) | {"regression": None if regressions is None else id(pair) in failing}
            for pair in comparison.pairs
        ],
        "unmatched": [_unmatched(unmatched) for unmatched in comparison.unmatched],
        "regressions": None if regressions is None else len(regressions),
    }


def _campaign(campaign):
    return {
        "path": campaign.path,
        "runs": len(campaign.runs),
        "finished": len(campaign.finished()),
        "not_ended": campaign.not_ended,
        "unread": list(campaign.unread),
    }


def _pair(pair):
    return {
        "combination": pair.values,
        "a": _side(pair.a),
        "b": _side(pair.b),
        **{name: _number(getattr(pair.compared, name, None)) for name in NUMBERS},
        "verdict": pair.verdict,
        "reason": pair.reason,
        "worse_beyond_margin": pair.beyond_margin,
    }


def _side(side):
    mean = side.mean
    return {
        "values": list(side.values),
        "mean": mean.value if mean else None,
        "mean_ci95_low": _number(mean.low) if mean else None,
        "mean_ci95_high": _number(mean.high) if mean else None,
        "failed": side.failed,
        "disturbed": side.disturbed,
    }


def _unmatched(unmatched):
    partner = unmatched.partner
    return {
        "side": unmatched.side,
        "combination": unmatched.values,
        "runs": unmatched.runs,
        "nearest_differs": partner and {n: list(values) for n, values in partner.items()},
    }


def _number(value):
    return None if value is None or math.isnan(value) else float(value)
