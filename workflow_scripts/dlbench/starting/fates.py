"""What ended runs that have no result, also in the words of the scheduler whose job they were in.

Schedulers are slow to ask, and many times over: each is asked once, for all jobs.
"""

import contextlib
from dataclasses import dataclass

from dlbench import Error, schedulers
from dlbench.common import plugins
from dlbench.log import attempts, event_fields, event_log

LAUNCH = b'{"event": "launch"'


@dataclass(frozen=True)
class Attempt:
    """The last attempt of a run that has no result.

    `number` is None where its log was not kept aside; `job` is (scheduler, id), None outside of
    one; `ended` is what its log says of its end, "" where it stops without one.
    """

    number: int | None
    job: tuple | None
    ended: str


def going(log):
    """The Attempt whose log lies where that of a run that goes on lies."""
    return Attempt(None, job(log), "")


def kept_aside(place):
    """The last Attempt whose log was kept aside in a run's folder, or None."""
    logs = attempts.kept_logs(place)
    if not logs:
        return None
    number, log = logs[-1]
    end = event_log.final_run_end(log)
    if end is None:
        return Attempt(number, job(log), "")
    return Attempt(number, None, ": ".join(filter(None, (end["status"], end["message"]))))


def job(log):
    """(scheduler, id) of the job that wrote the end of a log; None outside of one."""
    found = None
    with contextlib.suppress(OSError, event_fields.LogError), open(log, "rb") as file:
        for line in file:
            # A run that went on from a checkpoint was launched several times.
            if line.startswith(LAUNCH):
                given = event_fields.parse_event(line).get("job")
                found = (given["scheduler"], given["id"]) if given else None
    return found


def of(jobs):
    """{(scheduler, id): Fate} of those jobs of which their schedulers know and say something."""
    ids = {}
    for scheduler, job_id in jobs:
        ids.setdefault(scheduler, set()).add(job_id)
    found = {}
    for scheduler, asked in ids.items():
        # A scheduler of another machine, or more jobs than fit onto a command line.
        with contextlib.suppress(Error, OSError):
            known = plugins.load("schedulers", scheduler).fates(asked)
            found |= {(scheduler, job_id): fate for job_id, fate in known.items()}
    return found


def words(attempt, fate):
    """What ended an attempt, or how its job stands.

    Args:
        fate: that of its job; None where it is not known.
    """
    said = attempt.ended or "its log stops without an end"
    if fate:
        scheduler, job_id = attempt.job
        name = schedulers.called(scheduler)
        if fate.status == "running":
            return f"{name} still has job {job_id}: {fate.state}"
        said = f"{name} ended job {job_id}: {fate.state}"
    return said if attempt.number is None else f"attempt {attempt.number}: {said}"


def verdict(log):
    """What a scheduler's word on the last attempt makes of a run: (status, message), or None.

    Only what would repeat itself is a result: an attempt that ran out of memory or time.
    """
    last = kept_aside(log.parent)
    if last is None or last.job is None:
        return None
    fate = of([last.job]).get(last.job)
    if fate is None or fate.status not in ("oom", "timeout"):
        return None
    return fate.status, f"its job {last.job[1]} was ended, as those before it: {fate.state}"
