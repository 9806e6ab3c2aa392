"""The record of a run that another program trained (dlbench/study/other_trainers.py).

Its numbers are those that dlbench/imports/train_external.py read from the program's own log; those
of CPU, memory, GPUs and energy were sampled from outside.
"""

import math
import statistics
from typing import Any

from dlbench.log import energies, event_log
from dlbench.records import account, memory
from dlbench.study.runs import Run


def summary(logs: list[Any]) -> dict[str, Any]:
    """The numbers of a run's record; of several copies the mean rate and mean step times.

    Args:
        logs: the parse_run.RankLog of the run, or of each copy, with an `imported` event where the
            program's log was read.
    """
    each = [_of_program(log) for log in logs]
    rates = [numbers.get("images_per_second") for numbers in each]
    if len(each) == 1 or None in rates:
        return each[0]
    ends = [log.end or {} for log in logs]
    times = {name for name in each[0] if name.startswith("step_time_")}
    cpu_s: list[Any] = [end.get("cpu_time_s") for end in ends]
    return {
        **each[0],
        **{name: _mean(numbers.get(name) for numbers in each) for name in times},
        "images_per_second": statistics.fmean(rates),
        "copies_images_per_second": rates,
        "copy_sd_images_per_second": statistics.stdev(rates),
        "overlap": _overlap(logs),
        "duration_s": max(end.get("t_s", 0.0) for end in ends),
        "cpu_time_s": None if None in cpu_s else math.fsum(cpu_s),
        **energies.summary(_energies_of_copies(ends), logs[0].meter),
        **memory.summary(logs),
    }


def _of_program(log):
    numbers = log.imported["numbers"] if log.imported else {}
    return {
        "duration_s": log.end.get("t_s") if log.end else None,
        "started_at": log.start.get("t_utc"),
        "ended_at": log.end["t_utc"] if log.end else None,
        "resumes": 0,
        **energies.summary([log.end or {}], log.meter),
        "cpu_time_s": (log.end or {}).get("cpu_time_s"),
        **memory.summary([log]),
        **account.summary(log),
        "contradicts": (log.imported or {}).get("contradicts"),
        # JSON has no nan.
        **{name: value for name, value in numbers.items() if math.isfinite(value)},
    }


def _energies_of_copies(ends):
    """The run_end of each copy, with the energy of the node in the first alone: all sampled it."""
    return [ends[0], *({k: v for k, v in end.items() if "host_" not in k} for end in ends[1:])]


def _overlap(logs):
    """Share of the copies' time during which all of them ran; they have no common barrier."""
    zero = logs[0].start["t_utc"]
    spans = []
    for log in logs:
        start_s = event_log.seconds_between(zero, log.start["t_utc"])
        spans.append((start_s, start_s + (log.end or {}).get("t_s", 0.0)))
    together = min(end for _, end in spans) - max(start for start, _ in spans)
    mean_s = statistics.fmean(end - start for start, end in spans)
    return max(0.0, together) / mean_s if mean_s else 0.0


def _mean(values):
    known = list(values)
    return None if None in known else statistics.fmean(known)


def mismatch(run: Run, logs: list[Any], numbers: dict[str, Any]) -> tuple[str, str] | None:
    """Status and message of a run if nothing was measured, or not by all of its copies."""
    measured = sum(bool(log.imported) for log in logs)
    if measured < run.copies_per_node:
        return "failed", f"expected {run.copies_per_node} copies, found {measured} logs"
    return None if numbers.get("images_per_second") else ("failed", "no throughput in its log")
