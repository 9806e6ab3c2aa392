"""The page that compares machines which its reader chooses: compare.js makes the tables."""

from typing import Any

from dlbench.analysis.estimates import Estimate
from dlbench.pages.page import Page, Section
from dlbench.website.site_data import Site

ADDRESS = "compare.html"
DIGITS = 6


def page() -> Page:
    """The page without its data."""
    return Page(
        "Compare machines",
        "The level of each condition that the chosen machines have in common, and its ratio.",
        (Section("How to read it", _READING),),
    )


_READING = (
    "The level is the mean of the sessions since the last change. Ratios are of a machine to the "
    "first one, with 95 % intervals, of each condition alone. The colour says whether the interval "
    "lies wholly on the better or the worse side of 1.",
)


def data(site: Site) -> dict[str, Any]:
    """What the script compares, as plain values.

    `machines` has (label, hardware, address); `conditions` (label, metric, unit, better, address);
    `levels` one list a machine, of (place in conditions, value, low, high), the ends None where
    there is no interval.
    """
    series = [one for condition in site.conditions for one in condition.series]
    series = [one for one in series if one.level_points]
    keys = [(one.condition.address, one.metric) for one in series]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    conditions: dict[tuple[str, str], list[str]] = {}
    levels: dict[str, list[list[float | None]]] = {one.address: [] for one in site.machines}
    for key, one in zip(keys, series, strict=True):
        texts = [one.condition.label, one.metric, one.unit, one.better, one.condition.address]
        conditions.setdefault(key, texts)
        levels[one.machine.address].append([places[key], *_ends(one.level)])
    return {
        "machines": [(one.label, one.hardware, one.address) for one in site.machines],
        "conditions": list(conditions.values()),
        "levels": list(levels.values()),
    }


def _ends(level: Estimate) -> list[float | None]:
    known = level.low == level.low  # not nan
    return [
        _short(level.value),
        *(_short(end) if known else None for end in (level.low, level.high)),
    ]


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
