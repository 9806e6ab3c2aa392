"""Throughput, mean and scatter of the times of steps. Needs the standard library only.

Of several ranks the slowest counts: the one that took longest over all steps in question. Each
step's maximum over the ranks would not do. Ranks do not end a step at one moment, so one takes
longer now and another then, so that the maxima add up to more than the elapsed time.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any

MAD_TO_SIGMA = 1.4826


def summary(times_s: Sequence[float]) -> dict[str, float | None]:
    """Columns of the runs table from the times of all measured steps, in seconds; at least one.

    >>> summary([0.25, 0.25])["step_time_sd_s"]
    0.0
    """
    median = statistics.median(times_s)
    deviations = [abs(time - median) for time in times_s]
    return {
        "step_time_mean_s": statistics.mean(times_s),
        "step_time_sd_s": statistics.stdev(times_s) if len(times_s) > 1 else None,
        "step_time_median_s": median,
        "step_time_p95_s": _percentile_95(times_s),
        "step_time_mad_s": MAD_TO_SIGMA * statistics.median(deviations),
    }


def of_all_ranks(logs: Sequence[Any]) -> list[tuple[dict[str, Any], ...]]:
    """The steps that all ranks of one training finished.

    Args:
        logs: one for each rank, with the events of its `steps`.

    Returns:
        A list with a tuple for each step, of the event of each rank.
    """
    return list(zip(*(log.steps for log in logs), strict=False))


def slowest(steps: Sequence[tuple[dict[str, Any], ...]]) -> list[float]:
    """Seconds of each step on the rank that took longest over all of them; the first of equals.

    Args:
        steps: as `of_all_ranks` gives them, or some of them.
    """
    ranks = [[event["step_time_s"] for event in rank] for rank in zip(*steps, strict=True)]
    return max(ranks, key=math.fsum, default=[])


def images_per_second(step_times_s: Sequence[float], global_batch: int) -> float:
    """Throughput over the measured steps: items over time.

    Args:
        step_times_s: seconds, one for each step, all of one rank.
        global_batch: items per step over all devices.

    >>> images_per_second([0.5, 0.25, 0.25], global_batch=32)
    96.0

    Raises:
        ValueError: there are no steps.
    """
    if not step_times_s:
        raise ValueError("no measured steps: did the run stop during warm-up?")
    return global_batch * len(step_times_s) / math.fsum(step_times_s)


def _percentile_95(values):
    """As numpy.percentile: linear between the two nearest values."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=20, method="inclusive")[-1]
