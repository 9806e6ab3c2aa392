"""Settings, verdicts and numbers of findings as text."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from dlbench.analysis import base_flags, equivalence
from dlbench.study import wording

MINUS, TIMES = "\u2212", "\u00d7"


def setting_label(name: str, row: dict[str, Any]) -> str:
    """The label of a setting, as in `batch 64` or `no XLA`."""
    value = row[name]
    if name in wording.SWITCHES:
        return wording.switch(name, value)
    return wording.field(name, value) or str(value)


def colour_kind(verdict: str) -> str:
    """The colour of a verdict: good, bad, same or open."""
    kinds = {
        equivalence.FASTER: "good",
        equivalence.SLOWER: "bad",
        equivalence.EQUIVALENT: "same",
    }
    return kinds.get(verdict, "open")


def verdict_counts(verdicts: Iterable[str]) -> str:
    """As in `2 faster, 1 undecided`."""
    return ", ".join(f"{count} {verdict}" for verdict, count in Counter(verdicts).items())


def describe_runs(a: int, b: int) -> str:
    """How many runs the two sides of a comparison have."""
    if a == b == 1:
        return "one run each: no interval"
    return f"{a} and {b} runs" if a != b else f"{a} runs each"


def ratio_texts(value: float, low: float | None, high: float | None) -> tuple[str, str]:
    """(a ratio, its interval or ""): as differences, or as factors if any is large."""
    ends = () if low is None or high is None or math.isnan(low) else (low, high)
    if any(number >= 2 or number <= 0.5 for number in (value, *ends)):
        return f"{TIMES} {value:.3g}", " to ".join(f"{end:.3g}" for end in ends)
    number, *interval = (_signed(f"{100 * (part - 1):+.1f}") for part in (value, *ends))
    return f"{number} %", f"{interval[0]} to {interval[1]} %" if interval else ""


def _signed(number):
    return number.lstrip("+-") if float(number) == 0 else number.replace("-", MINUS)


def share_interval(low: float | None, high: float | None) -> str:
    """An interval of shares in percent, "" if there is none."""
    return "" if low is None or high is None else f"{100 * low:.3g} to {100 * high:.3g} %"


def drift_sentences(row: dict[str, Any]) -> Iterator[str]:
    """Sentences on the two sides of a comparison that were measured apart."""
    low, high = row.get("drift_ci95_low"), row.get("drift_ci95_high")
    if row.get("drift"):
        number, interval = ratio_texts(row["drift"], low, high)
        interval = f" ({interval})" if interval else ""
        yield f"The ratio is corrected for the drift between their sessions, {number}{interval}."
    if base_flags.APART in (row.get("base_flags") or ""):
        yield base_flags.REMEDY
