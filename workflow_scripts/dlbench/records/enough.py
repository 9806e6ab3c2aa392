"""Decide whether a combination needs further repeats, by the width of its interval so far."""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence

from dlbench.log import metrics
from dlbench.log.event_fields import SUCCEEDED
from dlbench.records import run_record
from dlbench.study import contradictions, goals
from dlbench.study.runs import Run


def earlier_repeats(run: Run) -> list[str]:
    """The ids of the repeats before this one."""
    return [dataclasses.replace(run, repeat=number).id for number in range(1, run.repeat)]


def not_needed(run_ids: Iterable[str], target: goals.Target) -> str | None:
    """Why a combination needs no further repeat; None if it needs one, or may need one.

    Args:
        run_ids: of the repeats so far, in their order.
    """
    is_throughput = target.metric == goals.THROUGHPUT
    name = "throughput" if is_throughput else target.metric
    values = []
    for number, run_id in enumerate(run_ids, start=1):
        try:
            record = run_record.read(run_record.folder(run_id) / "run.json")
        except run_record.RecordError:
            return None  # still to be done
        numbers = contradictions.withheld(record["summary"])  # of another program's log
        value = metrics.value_of(numbers, target.metric)
        if record["status"] in SUCCEEDED and value and value > 0:
            values.append(value)
        if number < target.min_repeats:
            continue
        if not values:
            named = "" if is_throughput else f" with a {target.metric} above 0"
            return f"not needed: none of the first {number} repeats completed{named}"
        reached = half_width(values)
        if reached is not None and reached <= target.interval:
            return (
                f"not needed: the {name} is known to {reached:.2%} after {number} repeats, "
                f"target_interval is {target.interval:.2%}"
            )
    return None


def half_width(values: Sequence[float]) -> float | None:
    """Half of the 95 % interval of a geometric mean, relative to it; None for fewer than two.

    >>> half_width([100.0, 100.0, 100.0])
    0.0
    """
    if not 2 <= len(values) <= len(goals.T_975) + 1:
        return None
    logs = [math.log(value) for value in values]
    return math.expm1(goals.T_975[len(logs) - 2] * statistics.stdev(logs) / math.sqrt(len(logs)))
