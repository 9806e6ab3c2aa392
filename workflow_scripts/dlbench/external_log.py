"""What the log of a run says that another program trained (dlbench/external.py).

Its steps may be windows: rows that are the mean of several steps. Throughput and mean step time are
over all steps, whatever the windows; scatter is known where every step has a row of its own. What
the program's own log says more exactly comes before what follows from its rows.

Needs the standard library only: a record is written where the run was trained.
"""

import math

from dlbench import external, step_times


def summary(run, log):
    """The numbers of a run's record.

    Args:
        log: a parsing.RankLog with an `imported` event.
    """
    rows = [
        (step["step_time_s"], step.get("window_steps") or 1)
        for step in log.steps
        if not step["warm_up"] and _is_number(step["step_time_s"])
    ]
    count, total_s = sum(n for _, n in rows), math.fsum(time * n for time, n in rows)
    losses = [step["loss"] for step in log.steps if _is_number(step["loss"])]
    found = {
        "steps_measured": count or None,
        "burn_in_steps": sum(
            step.get("window_steps") or 1 for step in log.steps if step["warm_up"]
        ),
        "resumes": 0,
        "duration_s": log.end.get("t_s") if log.end else None,
        "started_at": log.start.get("t_utc", log.launch.get("t_utc")),
        "ended_at": log.end["t_utc"] if log.end else None,
        "final_loss": losses[-1] if losses else None,
    }
    if total_s > 0:
        found["images_per_second"] = run.global_batch * count / total_s
        found["step_time_mean_s"] = total_s / count
        if count == len(rows):
            found |= step_times.summary([time for time, _ in rows])
    return found | log.imported["numbers"]


def mismatch(run, logs, found):
    """Status and message where what the program did is not what the run is, or is not known."""
    said = logs[0].imported["said"]
    for name in external.STATED:
        expected = getattr(run, name)
        if said.get(name) not in (None, expected):
            return "failed", f"expected {name} {expected}, its own log says {said[name]}"
    if not found.get("images_per_second"):
        return "failed", "no throughput in its log"
    return None


def _is_number(value):
    return value is not None and math.isfinite(value)
