"""A campaign held against bounds as a page, and as plain values for JSON."""

import math
from collections import Counter
from typing import Any

from dlbench.analysis.bounds import FAIL, PASS, TOO_FEW, UNDECIDED, Outcome
from dlbench.analysis.campaigns import Campaign
from dlbench.analysis.comparison_page import count_runs
from dlbench.pages.page import Cell, Page, Section, Table
from dlbench.study.wording import number, short_labels


def page(outcomes: list[Outcome], campaign: Campaign) -> Page:
    """The Page of outcomes; bounds that failed come first."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    others = ", ".join(f"{counts[name]} {name}" for name in (UNDECIDED, TOO_FEW) if counts[name])
    failed = len(outcomes) - counts[PASS]
    outcomes = sorted(outcomes, key=lambda outcome: (outcome.passed, _failure_order(outcome)))
    matched = [outcome.bound.match for outcome in outcomes]
    keys = dict.fromkeys(name for match in matched for name in match)
    names = short_labels([{name: match.get(name) for name in keys} for match in matched])
    rows = [_row(*both) for both in zip(names, outcomes, strict=True)]
    headings = ("combination", "metric", "measured", "expected", "from / to", "outcome")
    return Page(
        title="Check against bounds",
        lead=f"{counts[PASS]} of {len(outcomes)} bounds passed, {counts[FAIL]} failed"
        f"{', ' if others else ''}{others}.",
        sections=(
            Section("Campaign", (f"{campaign.path}: {count_runs(campaign)}",)),
            Section("Bounds", (), Table(headings, rows, right=(2, 3, 4))),
        ),
        kind="bad" if failed else "good",
    )


def _failure_order(outcome):
    return -math.inf if outcome.deviation is None else -abs(outcome.deviation)


def _row(name, outcome):
    bound, mean = outcome.bound, outcome.measured
    shares = (
        "none" if share is None else f"{100 * share:+g} %" for share in (bound.lower, bound.upper)
    )
    kind = {PASS: "good", FAIL: "bad"}.get(outcome.verdict, "open")
    return [
        name,
        bound.metric,
        f"{number(mean.value)} ({mean.runs})" if mean else "-",
        f"{number(bound.value)} {bound.unit}",
        " / ".join(shares),
        Cell(outcome.verdict, kind, outcome.message),
    ]


def plain(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """Outcomes as plain values, for JSON."""
    return [
        {
            "match": outcome.bound.match,
            "metric": outcome.bound.metric,
            "value": outcome.bound.value,
            "lower": outcome.bound.lower,
            "upper": outcome.bound.upper,
            "measured": outcome.measured.value if outcome.measured else None,
            "runs": outcome.measured.runs if outcome.measured else 0,
            "failed": outcome.failed,
            "deviation": outcome.deviation,
            "verdict": outcome.verdict,
            "passed": outcome.passed,
        }
        for outcome in outcomes
    ]
