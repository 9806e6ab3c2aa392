"""Throughput from epochs instead of steps: a check that neither step times nor batch enter.

Needs the standard library only: it goes into a record, which is written where the run was trained.
"""

import math
import statistics


def images_per_second(run, copies):
    """Epochs times the items of the dataset, over the time that the log's clock says; or None.

    Of the measured epochs of a run in one piece, evaluations between them left out.

    Args:
        copies: the logs of each copy's ranks, a list for each.
    """
    rates = []
    for logs in copies:
        first = logs[0]
        records, epochs = first.start.get("records"), {}
        for step in first.steps:
            if not step["warm_up"]:
                epochs.setdefault(step["epoch"], []).append(step)
        if not run.epochs or not records or not epochs or any(log.resumes for log in logs):
            return None
        seconds = math.fsum(
            steps[-1]["t_s"] - (steps[0]["t_s"] - steps[0]["step_time_s"])
            for steps in epochs.values()
        )
        if seconds <= 0:
            return None
        rates.append(len(epochs) * records / seconds)
    return statistics.fmean(rates)
