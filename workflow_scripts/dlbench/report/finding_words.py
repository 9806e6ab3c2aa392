"""Settings, verdicts and numbers of findings as text, and what the words of the report mean."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dlbench.analysis import base_flags, equivalence

MINUS, TIMES = "\u2212", "\u00d7"


# Terms of the report's section on the method, and what they mean.
_METHOD = [
    ("Run", "One training of one combination. The run is the unit of all statistics, never the "
     "step."),
    ("Device", "A GPU; on CPUs the cores to which the run is pinned."),
    ("Images per second", "Items of all measured steps and devices over the time that they took "
     "the slowest process; warm-up steps and compiling are left out, reading data is in it."),
    ("Step time", "From the end of the step before to its own end, on the process that took "
     "longest for all measured steps. Median and 95th percentile over these."),
    ("Goodput", "Share of the wall time of runs that was spent in training steps, warm-up "
     "included. Queue, start of the container, imports, compiling, evaluations, checkpoints and "
     "restarts are the rest."),
    ("Means and intervals", "Geometric means over the runs that completed (ok or unstable); 95 % "
     "intervals are Student's t for a mean and Welch's for a ratio, on the logarithm of the "
     "throughput."),
    ("Speedup and efficiency", "Throughput over that of the named base; efficiency is the speedup "
     "times the base's devices over these. Weak scaling fixes the batch per device, strong "
     "scaling the global batch. What differs from the base is named beside it."),
    ("Equivalent", "Two one-sided tests (TOST) show that the difference is within the margin of "
     "{margin}."),
    ("Slower, faster", "Not equivalent, and a two-sided test shows a difference. All verdicts "
     "hold at the 5 % level after Holm's correction."),
    ("Undecided", "Neither is shown. It is no proof of equality."),
    ("Measured apart", "No session (start of the workflow) has runs of both sides. What both "
     "sessions measured, as sentinels, tells how the machine drifted in between: the ratio is "
     "corrected for it, and its interval includes the drift's uncertainty. Unless the drift is "
     "shown to be equivalent to none, the two sides are flagged, and no statement about them is "
     "labelled shown."),
    ("Unstable", "The run completed, but its throughput over all measured steps differs by more "
     "than 5 % from that of the median step: steps stalled, or fast and slow ones alternate. Or "
     "other processes on the machine used more of the run's cores, GPUs, memory or disks than the "
     "config allows."),
    ("Shown, indicated, open", "How well a statement is supported. Shown: a test is significant, "
     "or at least three undisturbed runs of each side give an interval that excludes zero effect. "
     "Indicated: an interval of fewer runs or of disturbed ones, or of sides that differ in more "
     "than one thing or were measured apart. Open: the data do not answer it."),
]  # fmt: skip


def method(margin: float) -> list[tuple[str, str]]:
    """(term, its meaning) of the section on the method.

    Args:
        margin: of equivalence.
    """
    return [(term, text.format(margin=f"{100 * margin:.3g} %")) for term, text in _METHOD]


def unlike_bases(flagged: Sequence[str], of_all: str = "") -> str:
    """In what points differ from their bases, with the number of points of each kind.

    >>> unlike_bases(["seed", "seed", "model"], of_all="speedups")
    'in 2 of 3 speedups, point and base differ in seed; in 1, point and base differ in model'

    Args:
        flagged: the `base_mismatch` of each point.
        of_all: what the points are, which the first number then names with their count.
    """
    counts = sorted(Counter(flagged).items(), key=lambda item: (-item[1], item[0]))
    clauses = [base_flags.clause(flags, "point and base") for flags, _ in counts]
    if len(counts) == 1:
        return clauses[0]
    numbers = [f"in {count}" for _, count in counts]
    numbers[0] += f" of {len(flagged)} {of_all}" if of_all else ""
    return "; ".join(f"{n}, {clause}" for n, clause in zip(numbers, clauses, strict=True))


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
