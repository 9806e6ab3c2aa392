"""The record of a run that another program trained (dlbench/study/other_trainers.py).

Its numbers are those that dlbench/imports/train_external.py read from the program's own log. If the
program wrote that with programs/logger/dlbench_log.py, the run's log has its steps as our trainer
logs them, and the record has what a record of ours has (dlbench/records/parse_run.py).
"""

import math
from typing import Any

from dlbench import Error
from dlbench.log import energies, event_fields, metrics
from dlbench.study.runs import Run


def summary(log: Any, measured: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a run's record.

    Args:
        log: a parse_run.RankLog, with an `imported` event where the program's log was read.
        measured: the numbers from the steps of a program that logged them; {} of others.
    """
    numbers = log.imported["numbers"] if log.imported else {}
    found = {
        "duration_s": log.end.get("t_s") if log.end else None,
        "started_at": log.start.get("t_utc"),
        "ended_at": log.end["t_utc"] if log.end else None,
        "resumes": 0,
        **energies.summary([], log.meter),
        "contradicts": (log.imported or {}).get("contradicts"),
        # JSON has no nan.
        **{name: value for name, value in numbers.items() if math.isfinite(value)},
    }
    return found | {k: v for k, v in measured.items() if v is not None or k not in found}


def is_logged(log: Any) -> bool:
    """Whether the program logged its steps with dlbench_log.py.

    Args:
        log: a parse_run.RankLog.
    """
    return "logger" in log.start


def metric_summary(log: Any) -> dict[str, Any]:
    """{"metrics": those that the program names itself} of a RankLog; {} if it names none.

    Raises:
        LogError: one comes twice.
    """
    named = [{key: event[key] for key in metrics.KEYS} for event in log.metrics]
    try:
        metrics.check(named)
    except Error as error:
        raise event_fields.LogError(f"{log.path}: {error}") from None
    return {"metrics": named} if named else {}


def mismatch(run: Run, logs: list[Any], numbers: dict[str, Any]) -> tuple[str, str] | None:
    """Status and message of a run if nothing was measured."""
    if numbers.get("images_per_second") or logs[0].metrics:
        return None
    if is_logged(logs[0]) and (steps := numbers["burn_in_steps"]):
        return "failed", (
            f"all {steps} steps that it logged are warm-up (warmup_steps: {run.warmup_steps}): let "
            "it take more, or name fewer"
        )
    return "failed", "neither throughput nor a metric in its log"
