"""What ended runs that have no result, also in the words of the scheduler whose job they were in.

Asking a scheduler is slow, the more so many times over: each is asked once, for all jobs.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dlbench import Error, schedulers
from dlbench.common import plugins
from dlbench.log import attempts, event_fields, event_log
from dlbench.records import progress
from dlbench.schedulers import Fate

LAUNCH = b'{"event": "launch"'
Job = tuple[str, str]  # (scheduler, id)


@dataclass(frozen=True)
class Attempt:
    """The last attempt of a run that has no result.

    `number` is None if its log was not kept aside; `job` is None outside of a scheduler; `ended`
    is what its log says of its end, "" if it stops without one.
    """

    number: int | None
    job: Job | None
    ended: str


def current_attempt(log: Path) -> Attempt:
    """The Attempt whose log lies where that of a run that goes on lies."""
    return Attempt(None, job_of_log(log), "")


def last_attempt(place: Path) -> Attempt | None:
    """The last Attempt whose log was kept aside in a run's folder, or None."""
    logs = attempts.kept_logs(place)
    if not logs:
        return None
    number, log = logs[-1]
    end = event_log.final_run_end(log)
    if end is None:
        return Attempt(number, job_of_log(log), "")
    return Attempt(number, None, ": ".join(filter(None, (end["status"], end["message"]))))


def job_of_log(log: Path) -> Job | None:
    """The job that wrote the end of a log; None outside of one."""
    last = None
    with contextlib.suppress(OSError, event_fields.LogError), open(log, "rb") as file:
        for line in file:
            # A run that went on from a checkpoint was launched several times.
            if line.startswith(LAUNCH):
                job = event_fields.parse_event(line).get("job")
                last = (job["scheduler"], job["id"]) if job else None
    return last


def ask_schedulers(jobs: Iterable[Job]) -> dict[Job, Fate]:
    """What schedulers say of their jobs; those of which they know nothing are left out."""
    ids: dict[str, set[str]] = {}
    for scheduler, job_id in jobs:
        ids.setdefault(scheduler, set()).add(job_id)
    fate_by_job: dict[Job, Fate] = {}
    for scheduler, job_ids in ids.items():
        # A scheduler of another machine, or more jobs than fit onto a command line.
        with contextlib.suppress(Error, OSError):
            fates = plugins.load("schedulers", scheduler).fates(job_ids)
            fate_by_job |= {(scheduler, job_id): fate for job_id, fate in fates.items()}
    return fate_by_job


def describe(attempt: Attempt, fate: Fate | None) -> str:
    """What ended an attempt, or how its job stands, in words.

    Args:
        fate: of its job; None if it is not known.
    """
    words = attempt.ended or "its log stops without an end"
    if fate and attempt.job:
        scheduler, job_id = attempt.job
        name = schedulers.display_name(scheduler)
        if fate.status == "running":
            return f"{name} still has job {job_id}: {fate.state}"
        words = f"{name} ended job {job_id}: {fate.state}"
    return words if attempt.number is None else f"attempt {attempt.number}: {words}"


def verdict(log: Path, logs_steps: bool = True) -> tuple[str, str, bool] | None:
    """What follows from how the last attempt's job ended: (status, message, before_first_step).

    Only what would repeat itself is a result: an attempt that ran out of memory, or of time after
    its first step. None for other ends.

    Args:
        logs_steps: whether its trainer logs them while it trains.
    """
    last = last_attempt(log.parent)
    if last is None or last.job is None:
        return None
    fate = ask_schedulers([last.job]).get(last.job)
    if fate is None or fate.status not in ("oom", "timeout"):
        return None
    message = f"its job {last.job[1]} was ended, as those before it: {fate.state}"
    logs = (path for _, path in attempts.kept_logs(log.parent))
    if fate.status == "timeout" and logs_steps and not any(map(progress.took_step, logs)):
        return "failed", f"{message}; no step yet", True
    return fate.status, message, False
