"""The record of a run that another program trained (dlbench/study/other_trainers.py).

Its numbers are those that dlbench/imports/train_external.py read from the program's own log; those
of CPU, memory, GPUs and energy were sampled from outside.
"""

import math
from typing import Any

from dlbench.log import energies
from dlbench.records import account, memory
from dlbench.study.runs import Run


def summary(log: Any) -> dict[str, Any]:
    """The numbers of a run's record.

    Args:
        log: a parse_run.RankLog, with an `imported` event where the program's log was read.
    """
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


def mismatch(run: Run, logs: list[Any], numbers: dict[str, Any]) -> tuple[str, str] | None:
    """Status and message of a run if nothing was measured."""
    return None if numbers.get("images_per_second") else ("failed", "no throughput in its log")
