"""Throughput, mean and scatter of step times. Needs the standard library only.

Of several ranks the slowest counts: the one that took longest over all steps in question. Taking
each step's maximum over the ranks would be wrong: ranks do not end a step at the same moment, now
one is slower and now another, and the maxima add up to more than the elapsed time.

Steps may be timed in windows of several. Then each step counts as the mean of its window, so totals
and means are exact, and a window has a weight of its number of steps. The scatter within windows is
unknown: median, percentile and MAD are over these means, the standard deviation is over windows.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from dlbench.study.runs import Run

MAD_TO_SIGMA = 1.4826


def summary(times_s: Sequence[float], windows: Sequence[int] = ()) -> dict[str, float | None]:
    """Columns of the runs table from the times of all measured steps, in seconds; at least one.

    Args:
        times_s: seconds of a step, the mean over its window; one for each window.
        windows: the number of steps in each window; () if each has one.

    >>> summary([0.25, 0.25])["step_time_sd_s"]
    0.0
    >>> summary([1.0, 4.0], [2, 1])["step_time_mean_s"]
    2.0
    """
    deviation = _standard_deviation(times_s, windows)
    times_s = of_steps(times_s, windows)
    median = statistics.median(times_s)
    deviations = [abs(time - median) for time in times_s]
    return {
        "step_time_mean_s": statistics.mean(times_s),
        "step_time_sd_s": deviation,
        "step_time_median_s": median,
        "step_time_p95_s": _percentile_95(times_s),
        "step_time_mad_s": MAD_TO_SIGMA * statistics.median(deviations),
    }


def of_steps(times_s: Sequence[float], windows: Sequence[int] = ()) -> Sequence[float]:
    """Seconds of each step, the mean over its window; arguments as for `summary`.

    >>> of_steps([0.5, 0.25], [1, 2])
    [0.5, 0.25, 0.25]
    """
    if not windows:
        return times_s
    return [time for time, steps in zip(times_s, windows, strict=True) for _ in range(steps)]


def window_steps(event: dict[str, Any]) -> int:
    """The number of steps that a step event covers."""
    return event.get("window_steps", 1)


def count(events: Iterable[dict[str, Any]]) -> int:
    """The number of steps that some step events cover."""
    return sum(map(window_steps, events))


def window_s(event: dict[str, Any]) -> float:
    """Seconds of the window that a step event covers."""
    return event["step_time_s"] * event.get("window_steps", 1)


def of_all_ranks(logs: Sequence[Any]) -> list[tuple[dict[str, Any], ...]]:
    """The steps, or windows of steps, that all ranks of one training finished.

    `logs`: one for each rank, with the events of its `steps`. Returns a list with a tuple for each,
    of the event of each rank.
    """
    return list(zip(*(log.steps for log in logs), strict=False))


def windows(steps: Sequence[tuple[dict[str, Any], ...]]) -> list[int]:
    """The number of steps in each window of `of_all_ranks`, which is the same for all ranks."""
    return [window_steps(ranks[0]) for ranks in steps]


def slowest(steps: Sequence[tuple[dict[str, Any], ...]]) -> list[float]:
    """Seconds of a step in each window, on the rank that took longest; the first of equals.

    `steps`: as `of_all_ranks` gives them, or some of them.
    """
    ranks = list(zip(*steps, strict=True))
    longest = max(ranks, key=lambda rank: math.fsum(map(window_s, rank)), default=())
    return [event["step_time_s"] for event in longest]


def by_copy(run: Run, logs: Sequence[Any]) -> list[Sequence[Any]]:
    """[logs of each model that was trained]: one log for each copy, or those of all ranks."""
    return [[log] for log in logs] if run.copies_per_node > 1 else [logs]


def measured(logs: Sequence[Any]) -> tuple[list[float], list[int], list[float]]:
    """The windows of steps after the warm-up that all ranks of one copy finished.

    Returns:
        Three lists, with a value for each window: seconds of a step (of the slowest rank), number
        of steps, and loss of the last step (mean over ranks).
    """
    steps = [ranks for ranks in of_all_ranks(logs) if not ranks[0]["warm_up"]]
    losses = [sum(event.get("loss", math.nan) for event in ranks) / len(ranks) for ranks in steps]
    return slowest(steps), windows(steps), losses


def images_per_second(step_times_s: Sequence[float], global_batch: int) -> float:
    """Throughput over the measured steps: items over time.

    Args:
        step_times_s: seconds, one for each step, all of one rank.
        global_batch: items per step over all devices.

    >>> images_per_second([0.5, 0.25, 0.25], global_batch=32)
    96.0

    Raises ValueError: there are no steps.
    """
    if not step_times_s:
        raise ValueError("no measured steps: did the run stop during warm-up?")
    return global_batch * len(step_times_s) / math.fsum(step_times_s)


def _standard_deviation(times_s, windows):
    """Sample standard deviation over windows, which weigh as many steps as they have."""
    if len(times_s) < 2:
        return None
    if len(set(windows)) < 2:
        return statistics.stdev(times_s)
    total = sum(windows)
    mean = math.fsum(t * n for t, n in zip(times_s, windows, strict=True)) / total
    squares = math.fsum(n * (t - mean) ** 2 for t, n in zip(times_s, windows, strict=True))
    # For equal windows this is (number of windows - 1) * (steps in a window).
    freedom = total - sum(n * n for n in windows) / total
    return math.sqrt(squares / freedom)


def _percentile_95(values):
    """As numpy.percentile: linear between the two nearest values."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=20, method="inclusive")[-1]
