"""Rounds of a measurement: the time of one on the slowest process, and what is kept of several."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlbench.trainer.calibration import Repeat

ROUNDS, ROUND_S = 5, 0.1
MOST_NUMBER = 2000  # in one round
Gather = Callable[[list[float]], Any]  # the numbers of all processes; none returns before all call


def alone(values: list[float]) -> list[float]:
    """Gather of a process that has no others."""
    return values


def seconds_of_one(
    times: Repeat, gather: Gather = alone, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Seconds that one takes, in each of ROUNDS rounds, on the slowest process.

    All processes begin a round together and do as many as fill ROUND_S by the round before, after
    one that compiles and connects and one alone. So a quick one makes one round too long, not all.

    Args:
        times: does it so many times and waits for the last.
        gather: that of the processes' strategy.
        clock: seconds since any moment.
    """

    def slowest(number):
        gather([0.0])
        begin = clock()
        times(number)
        return max(float(np.max(gather([clock() - begin]))), 1e-9) / number

    slowest(1)
    seconds = [slowest(1)]
    for _ in range(ROUNDS):
        number = min(max(round(ROUND_S / seconds[-1]), 1), MOST_NUMBER)
        seconds.append(slowest(number))
    return seconds[1:]


def kept(measure: str, unit: str, values: Sequence[float], **more: Any) -> dict[str, Any]:
    """What is kept of the values of several rounds: their median, the least and the most.

    >>> kept("memory_copy", "GB/s", [3.0, 1.0, 2.0])
    {'measure': 'memory_copy', 'unit': 'GB/s', 'value': 2.0, 'low': 1.0, 'high': 3.0, 'rounds': 3}

    Args:
        measure: the name of what was measured.
        unit: of the values.
        more: further columns of the table of baselines.
    """
    return {
        "measure": measure,
        "unit": unit,
        "value": statistics.median(values),
        "low": min(values),
        "high": max(values),
        "rounds": len(values),
        **more,
    }


def timed(
    measure: str, size_bytes: int, seconds: Sequence[float], moved_bytes: float
) -> dict[str, Any]:
    """As `kept`, of something that moves bytes: its bandwidth in GB/s, and its time.

    Args:
        size_bytes: of what is moved.
        seconds: of one, in each round.
        moved_bytes: by which the bandwidth is counted.
    """
    rates = [moved_bytes / s / 1e9 for s in seconds]
    times_s = {"time_s": statistics.median(seconds), "time_low_s": min(seconds)}
    times_s["time_high_s"] = max(seconds)
    return kept(measure, "GB/s", rates, size_bytes=size_bytes, **times_s)
