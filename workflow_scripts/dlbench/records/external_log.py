"""The record of a run that another program trained (dlbench/study/other_trainers.py).

Its numbers are those that dlbench/imports/train_external.py read from the program's own log; those
of CPU, memory, GPUs and energy were sampled from outside. If the program wrote its log with
programs/logger/dlbench_log.py, the run's log has its steps as our trainer logs them, and the record
has what a record of ours has (dlbench/records/parse_run.py).
"""

import math
import statistics
from typing import Any

from dlbench import Error
from dlbench.log import energies, event_fields, event_log, metrics
from dlbench.records import account, memory
from dlbench.study.runs import Run


def summary(logs: list[Any], measured: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a run's record; of several copies the mean rate and mean step times.

    Args:
        logs: the first parse_run.RankLog of the run, or of each copy, with an `imported` event
            where the program's log was read.
        measured: the numbers from the steps of a program that logged them; {} of others.
    """
    found, outside = _of_programs(logs), _from_outside(logs)
    known = {k: v for k, v in measured.items() if v is not None or k not in found}
    return found | known | outside


def _of_programs(logs):
    """What the logs of the program, or of its copies, say."""
    each = [_of_program(log) for log in logs]
    rates = [numbers.get("images_per_second") for numbers in each]
    if len(each) == 1 or None in rates:
        return each[0]
    times = {name for name in each[0] if name.startswith("step_time_")}
    return {
        **each[0],
        **{name: _mean(numbers.get(name) for numbers in each) for name in times},
        "images_per_second": statistics.fmean(rates),
        "copies_images_per_second": rates,
        "copy_sd_images_per_second": statistics.stdev(rates),
        "overlap": _overlap(logs),
        "duration_s": max((log.end or {}).get("t_s", 0.0) for log in logs),
    }


def _of_program(log):
    numbers = log.imported["numbers"] if log.imported else {}
    return {
        "duration_s": log.end.get("t_s") if log.end else None,
        "started_at": log.start.get("t_utc"),
        "ended_at": log.end["t_utc"] if log.end else None,
        "resumes": 0,
        **account.summary(log),
        "contradicts": (log.imported or {}).get("contradicts"),
        # JSON has no nan.
        **{name: value for name, value in numbers.items() if math.isfinite(value)},
    }


def _from_outside(logs):
    """What the program, or its copies, used: all ranks of one, since its processes are sampled."""
    ends = [log.end or {} for log in logs]
    cpu_s: list[Any] = [end.get("cpu_time_s") for end in ends]
    return {
        **energies.summary(_energies_of_copies(ends), logs[0].meter),
        "cpu_time_s": None if None in cpu_s else math.fsum(cpu_s),
        **memory.summary(logs),
    }


def metric_summary(firsts: list[Any]) -> dict[str, Any]:
    """{"metrics": those that the program names itself}; {} if it names none.

    Args:
        firsts: the first RankLog of the run, or of each copy, of which the mean counts.

    Raises:
        LogError: one comes twice.
    """
    each = [_metrics(log) for log in firsts]
    named = [
        {"name": key[0], "value": _mean(one[key] for one in each), "unit": key[1], "better": key[2]}
        for key in each[0]
        if all(key in one for one in each)
    ]
    return {"metrics": named} if named else {}


def _metrics(log):
    """Values of a log's metrics by name, unit and direction."""
    named = [{key: event[key] for key in metrics.KEYS} for event in log.metrics]
    try:
        metrics.check(named)
    except Error as error:
        raise event_fields.LogError(f"{log.path}: {error}") from None
    return {(one["name"], one["unit"], one["better"]): one["value"] for one in named}


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
    if len(known) == 1:
        return known[0]
    return None if None in known else statistics.fmean(known)


def mismatch(run: Run, logs: list[Any], numbers: dict[str, Any]) -> tuple[str, str] | None:
    """Status and message of a run if nothing was measured, or not by all of its copies."""
    count = sum(bool(log.imported) for log in logs)
    if count < run.copies_per_node:
        return "failed", f"expected {run.copies_per_node} copies, found {count} logs"
    if numbers.get("images_per_second") or logs[0].metrics:
        return None
    if logs[0].is_logged and (steps := numbers["burn_in_steps"]):
        return "failed", (
            f"all {steps} steps that it logged are warm-up (warmup_steps: {run.warmup_steps}): let "
            "it take more, or name fewer"
        )
    return "failed", "neither throughput nor a metric in its log"
