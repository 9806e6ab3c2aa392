"""Throughput from epochs: a check of the throughput from steps, without step times or batch size.

Needs the standard library only: a record is written where the run was trained.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from dlbench.records import step_times
from dlbench.study.runs import Run


def images_per_second(run: Run, copies: Sequence[Sequence[Any]]) -> float | None:
    """Epochs times the items of the dataset, over their time by the logs' clocks; or None.

    The time is that of the measured epochs, without evaluations between them, on the rank that took
    longest. None for a run that resumed.

    Args:
        copies: the logs of each copy's ranks, a list for each.
    """
    rates = []
    for logs in copies:
        records = logs[0].start.get("records")
        steps = [ranks for ranks in step_times.of_all_ranks(logs) if not ranks[0]["warm_up"]]
        if not run.epochs or not records or any(log.resumes for log in logs):
            return None
        seconds = max((_seconds(events) for events in zip(*steps, strict=True)), default=0)
        if seconds <= 0:
            return None
        epochs = {ranks[0]["epoch"] for ranks in steps}
        rates.append(len(epochs) * records / seconds)
    return statistics.fmean(rates)


def _seconds(steps):
    """From the beginning to the end of each epoch, by the clock of one rank."""
    epochs = {}
    for step in steps:
        epochs.setdefault(step["epoch"], []).append(step)
    return math.fsum(
        events[-1]["t_s"] - (events[0]["t_s"] - step_times.window_s(events[0]))
        for events in epochs.values()
    )
