"""Why attempts of runs ended without a result: by their logs, and by their scheduler's jobs.

Querying a scheduler is slow, so each is queried once, for all jobs together.
"""

import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench import Error, schedulers
from dlbench.common import plugins
from dlbench.log import attempts, event_fields, event_log
from dlbench.records import progress
from dlbench.schedulers import JobState

LAUNCH = b'{"event": "launch"'
Job = tuple[str, str]  # (scheduler, id)


@dataclass(frozen=True)
class Attempt:
    """An attempt of a run that has no result.

    Attributes:
        number: None while its log is the current one, train.jsonl.
        job: None outside of a scheduler.
        end_message: status and message of its run_end; "" if the log has none.
        session: id of the start that made the attempt; None if unknown.
    """

    number: int | None
    job: Job | None
    end_message: str
    session: str | None = None


def current_attempt(log: Path) -> Attempt:
    """The attempt that writes, or last wrote, train.jsonl."""
    return Attempt(None, job_of_log(log), "", _session(_launch(log)))


def latest_attempts(place: Path) -> list[Attempt]:
    """The attempts of the last session whose logs were moved aside in a run's folder, in order."""
    logged = (_attempt_of_log(number, log) for number, log in reversed(attempts.kept_logs(place)))
    last = next(logged, None)
    if last is None:
        return []
    before = itertools.takewhile(lambda a: last.session and a.session == last.session, logged)
    return [*reversed(list(before)), last]


def _attempt_of_log(number, log):
    end, launch = event_log.final_run_end(log), _launch(log)
    if end is None:
        return Attempt(number, _job(launch), "", _session(launch))
    end_message = ": ".join(filter(None, (end["status"], end["message"])))
    if end["status"] in event_fields.SUCCEEDED:
        end_message = "it completed, and is to be measured again"
    return Attempt(number, None, end_message, _session(launch))


def job_of_log(log: Path) -> Job | None:
    """The scheduler's job of the last launch in a log; None outside of a job."""
    return _job(_launch(log))


def _job(launch):
    return (launch["job"]["scheduler"], launch["job"]["id"]) if launch.get("job") else None


def _session(launch):
    return (launch.get("session") or {}).get("id")


def _launch(log):
    """The last launch in a log; a run that went on from a checkpoint was launched several times."""
    last: dict[str, Any] = {}
    with contextlib.suppress(OSError, event_fields.LogError), open(log, "rb") as file:
        for line in file:
            if line.startswith(LAUNCH):
                last = event_fields.parse_event(line)
    return last


def query_schedulers(jobs: Iterable[Job]) -> dict[Job, JobState]:
    """Query each scheduler once for all its jobs. Jobs that it does not know are left out."""
    ids: dict[str, set[str]] = {}
    for scheduler, job_id in jobs:
        ids.setdefault(scheduler, set()).add(job_id)
    state_by_job: dict[Job, JobState] = {}
    for scheduler, job_ids in ids.items():
        # A scheduler of another machine, or more jobs than fit onto a command line.
        with contextlib.suppress(Error, OSError):
            job_states = plugins.load("schedulers", scheduler).job_states(job_ids)
            state_by_job |= {
                (scheduler, job_id): job_state for job_id, job_state in job_states.items()
            }
    return state_by_job


def describe_all(attempts: Sequence[Attempt], job_states: Mapping[Job, JobState]) -> str:
    """One sentence on each attempt: why it ended, or the state of its job.

    Args:
        job_states: of their jobs; jobs that the scheduler no longer knows are missing.
    """
    return "; ".join(describe(a, job_states.get(a.job) if a.job else None) for a in attempts)


def describe(attempt: Attempt, job_state: JobState | None) -> str:
    """Why an attempt ended, or the state of its job.

    Args:
        job_state: of its job; None if the scheduler no longer knows it.
    """
    text = attempt.end_message or "its log stops without an end"
    if job_state and attempt.job:
        scheduler, job_id = attempt.job
        name = schedulers.display_name(scheduler)
        if job_state.status == "running":
            return f"{name} still has job {job_id}: {job_state.state}"
        text = f"{name} ended job {job_id}: {job_state.state}"
    return text if attempt.number is None else f"attempt {attempt.number}: {text}"


class EarlierAttempts:
    """The attempts of a run that this start has made so far, and why they ended.

    Args:
        place: the run's folder.
        session: id of this start; None takes the attempts of the last session.
    """

    def __init__(self, place: Path, session: str | None) -> None:
        latest = latest_attempts(place)
        self._place = place
        self._attempts = latest if session in (None, *(a.session for a in latest)) else []
        self._job_states = query_schedulers(a.job for a in self._attempts if a.job)

    @property
    def interrupted(self) -> int:
        """How many the scheduler interrupted. These do not count towards the allowed attempts."""
        return sum(job_state.status == "interrupted" for job_state in self._job_states.values())

    def describe(self) -> str:
        """Why each of them ended, in order."""
        return describe_all(self._attempts, self._job_states)

    def verdict(self, logs_steps: bool = True) -> tuple[str, str, bool] | None:
        """The result that the end of the last attempt's job implies, if any.

        Running out of memory, and out of time after the first step, would happen again: these are
        results. Other ends are not.

        Args:
            logs_steps: whether the trainer logs steps while it trains.

        Returns:
            (status, message, before_first_step), or None.
        """
        job = self._attempts[-1].job if self._attempts else None
        job_state = self._job_states.get(job) if job else None
        if not job or job_state is None or job_state.status not in ("oom", "timeout"):
            return None
        message = f"its job {job[1]} was ended: {job_state.state} ({self.describe()})"
        logs = (path for _, path in attempts.kept_logs(self._place))
        if job_state.status == "timeout" and logs_steps and not any(map(progress.took_step, logs)):
            return "failed", f"{message}; no step yet", True
        return job_state.status, message, False
