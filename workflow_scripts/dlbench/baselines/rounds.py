"""Rows of the table of baselines: an operation timed in rounds, on the slowest process."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from dlbench.common.run_fields import BASELINES, DEVICE, EXCHANGE, tagged
from dlbench.trainer.calibration import Repeat

MEASURES = ("matrix_product", "memory_copy", "host_to_device")  # of a device, whatever is read
# The fields of a run by which baselines differ: those of one device, those of an exchange, all.
OF_BOTH = tagged(BASELINES)
OF_DEVICE, OF_EXCHANGE = (*OF_BOTH, *tagged(DEVICE)), (*OF_BOTH, *tagged(EXCHANGE))
CONDITIONS = (*OF_DEVICE, *tagged(EXCHANGE))
NOT_MEASURED = "not measured"  # how the reason of a baseline that failed begins
ROUNDS, ROUND_S = 5, 0.1
MAX_PER_ROUND = 2000  # operations
# An all-gather: the numbers of all processes. It is a barrier, too: none returns before all call.
Gather = Callable[[list[float]], Any]


def alone(values: list[float]) -> list[list[float]]:
    """Gather of a process that has no others."""
    return [values]


def seconds_per_operation(
    repeat: Repeat,
    gather: Gather = alone,
    clock: Callable[[], float] = time.perf_counter,
    number: int = ROUNDS,
) -> list[float]:
    """Seconds that one operation takes on the slowest process, in each of several rounds.

    The first operation, which compiles and connects, is not timed; the second is timed alone. Each
    round then performs as many operations as would have filled ROUND_S at the speed of the round
    before it. If an operation happens to be fast once, only the next round gets too long. All
    processes start a round at a barrier, the `gather` of their strategy.

    `repeat` performs the operation so many times and waits for the last; `number`: of rounds.
    """

    def slowest(count):
        gather([0.0])
        begin = clock()
        repeat(count)
        return max(max(float(row[0]) for row in gather([clock() - begin])), 1e-9) / count

    slowest(1)
    seconds = [slowest(1)]
    for _ in range(number):
        count = min(max(round(ROUND_S / seconds[-1]), 1), MAX_PER_ROUND)
        seconds.append(slowest(count))
    return seconds[1:]


def summary(measure: str, unit: str, values: Sequence[float], **more: Any) -> dict[str, Any]:
    """A row: the median of the values of several rounds, the least and the most; further columns.

    >>> summary("memory_copy", "GB/s", [3.0, 1.0, 2.0])
    {'measure': 'memory_copy', 'unit': 'GB/s', 'value': 2.0, 'low': 1.0, 'high': 3.0, 'rounds': 3}
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
    """As `summary`, of an operation that moves bytes: its bandwidth in GB/s, and its time.

    `seconds`: of one operation, in each round; `moved_bytes`: by which the bandwidth is counted.
    """
    rates = [moved_bytes / s / 1e9 for s in seconds]
    times_s = {"time_s": statistics.median(seconds), "time_low_s": min(seconds)}
    times_s["time_high_s"] = max(seconds)
    return summary(measure, "GB/s", rates, size_bytes=size_bytes, **times_s)
