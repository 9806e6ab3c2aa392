"""What became of attempts of a run: why they ended without a result, or that their result is kept.

- An attempt without a result is judged by its log and its scheduler's job. Querying a scheduler is
  slow, so each is queried once, for all jobs together.
- Snakemake 9.27 loses a scheduler's message about a job that it refuses (account, quota, a filter
  of the site). So it is printed here and written to refused.json in the run's folder. The next
  attempt moves it into its log, and so into the run's record.
- A job may count as failed although its run has ended and its record is written: its scheduler has
  forgotten it, or its node went down at that moment. Snakemake starts such a job again and removes
  its outputs first. So the log and the record of a finished run have hard links in
  results/recorded/{run_id}/, which Snakemake does not know. The next job of the run checks them and
  puts the files back instead of training. The links are removed at the end of the start.

Needs the standard library only.
"""

import contextlib
import functools
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench import Error, schedulers
from dlbench.common import plugins
from dlbench.common.files import write_json
from dlbench.log import attempts, event_fields, event_log
from dlbench.records import costs, run_record
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
    return _attempt(None, log, "")


def latest_attempts(place: Path) -> list[Attempt]:
    """The attempts of the last session whose logs were moved aside in a run's folder, in order."""
    logged = (_ended_attempt(number, log) for number, log in reversed(attempts.kept_logs(place)))
    last = next(logged, None)
    if last is None:
        return []
    before = itertools.takewhile(lambda a: last.session and a.session == last.session, logged)
    return [*reversed(list(before)), last]


def _ended_attempt(number, log):
    end = event_log.final_run_end(log)
    if end is None:
        return _attempt(number, log, "")
    if end["status"] in event_fields.SUCCEEDED:
        return _attempt(number, log, "it completed, and is to be measured again")
    return _attempt(number, log, ": ".join(filter(None, (end["status"], end["message"]))))


def _attempt(number, log, end_message):
    """By the last launch in a log: a run that went on from a checkpoint has several."""
    launch: dict[str, Any] = {}
    with contextlib.suppress(OSError, event_fields.LogError), open(log, "rb") as file:
        for line in file:
            if line.startswith(LAUNCH):
                launch = event_fields.parse_event(line)
    job = None if end_message else launch.get("job")
    session = (launch.get("session") or {}).get("id")
    return Attempt(number, job and (job["scheduler"], job["id"]), end_message, session)


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
            state_by_job |= {(scheduler, job_id): job_states[job_id] for job_id in job_states}
    return state_by_job


def describe(attempts: Sequence[Attempt], job_states: Mapping[Job, JobState]) -> str:
    """One sentence on each attempt: why it ended, or the state of its job.

    `job_states`: of their jobs; jobs that the scheduler no longer knows are missing.
    """
    return "; ".join(_describe(attempt, job_states) for attempt in attempts)


def _describe(attempt, job_states):
    text = attempt.end_message or "its log stops without an end"
    if job_state := job_states.get(attempt.job):
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
        return describe(self._attempts, self._job_states)

    def verdict(self, logs_steps: bool = True) -> tuple[str, str, bool] | None:
        """The result that the end of the last attempt's job implies, if any.

        Running out of memory, and out of time after the first step, would happen again: these are
        results. Other ends are not. `logs_steps`: whether the trainer logs steps while it trains.

        Returns (status, message, before_first_step), or None.
        """
        job = self._attempts[-1].job if self._attempts else None
        job_state = self._job_states.get(job) if job else None
        if not job or job_state is None or job_state.status not in ("oom", "timeout"):
            return None
        message = f"its job {job[1]} was ended: {job_state.state} ({self.describe()})"
        logs = (path for _, path in attempts.kept_logs(self._place))
        if job_state.status == "timeout" and logs_steps and not any(map(costs.took_step, logs)):
            return "failed", f"{message}; no step yet", True
        return job_state.status, message, False


FILE = "refused.json"
MAX_LENGTH = 600


def record_refusal(
    run_ids: Iterable[str], scheduler: str, message: str, quietly: bool = False
) -> None:
    """Print that a scheduler refused the job of some runs, and write it into their folders.

    Args:
        scheduler: name of a file in schedulers/.
        message: of its submit command.
        quietly: do not print it.
    """
    by = schedulers.display_name(scheduler)
    message = "; ".join(filter(None, map(str.strip, message.splitlines())))[:MAX_LENGTH]
    for run_id in run_ids:
        if not quietly:
            print(f"{run_id}: {by} refused its job: {message}", file=sys.stderr, flush=True)
        place = run_record.folder(run_id)
        times = _read(place).get("times", 0) + 1
        refusal = {"by": by, "message": message, "times": times, "t_utc": event_log.utc_now()}
        write_json(place / FILE, refusal)


def describe_refusal(place: Path) -> str:
    """Who refused the job of a run since its last attempt, and why; "" if nobody did."""
    refusal = _read(place)
    times = refusal.get("times", 0)
    often = f", {times} times" if times > 1 else ""
    return f"{refusal['by']} refused its job{often}: {refusal['message']}" if refusal else ""


def take_refusal(place: Path) -> dict[str, Any] | None:
    """Read and remove the refusal in a run's folder: by, message, times, t_utc; or None."""
    refusal = _read(place)
    (place / FILE).unlink(missing_ok=True)
    return refusal or None


def _read(place):
    try:
        refusal = json.loads((place / FILE).read_text())
        return refusal if {"by", "message", "times"} <= refusal.keys() else {}
    except (OSError, ValueError, AttributeError):
        return {}


FOLDER = run_record.RECORDED
RECORD, LOG, MESSAGES = "run.json", "train.jsonl", "messages.log"


def link_results(log: Path, messages: Path) -> None:
    """Make the hard links of a run that has a record.

    Args:
        log: of rank 0, in the run's folder. For other folders, as those of a search's tries, which
            Snakemake does not know, nothing is done.
        messages: the file with the trainer's output.
    """
    if log.parent.parent != run_record.RESULTS / "runs":
        return
    folder = FOLDER / log.parent.name
    part = folder.with_name(f"{folder.name}.part")
    with contextlib.suppress(OSError):  # it is a precaution, no part of the result
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        record = run_record.read(log.with_name(RECORD))
        for name in (RECORD, *record["files"]):
            _link(log.with_name(name), part / name)
        if messages.is_file():
            _link(messages, part / MESSAGES)
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)


def put_back(log: Path, messages: Path, is_wanted: Callable[[dict[str, Any]], bool]) -> bool:
    """Restore the files of a run that an earlier job of this start recorded.

    Args:
        log, messages: as in `link_results`.
        is_wanted: record -> whether it is valid for this run, so that it need not be trained again.

    Returns:
        Whether there was such a record, with files that have its digests.
    """
    folder = FOLDER / log.parent.name
    try:
        record = run_record.read_whole(folder, content=True)
    except run_record.RecordError:
        return False
    if not is_wanted(record):
        return False
    # The record comes last, so that a record always has its logs.
    for name in (*record["files"], RECORD):
        _replace(folder / name, log.with_name(name))
    if (folder / MESSAGES).is_file():
        _replace(folder / MESSAGES, messages)
    return True


def put_aside(log: Path) -> None:
    """Move the logs that an earlier job recorded aside: the run is trained again."""
    folder = FOLDER / log.parent.name
    if not (folder / LOG).is_file():
        return
    for path in folder.iterdir():
        if path.name not in (RECORD, MESSAGES):
            _replace(path, log.with_name(path.name))
    event_log.keep_aside(log)
    shutil.rmtree(folder, ignore_errors=True)


def settle_links() -> None:
    """At the end of a start: restore missing files and remove the links."""
    for folder in _folders():
        place = run_record.folder(folder.name)
        messages = run_record.RESULTS / "logs" / "train" / f"{folder.name}.log"
        if not (place / RECORD).is_file():
            put_back(place / LOG, messages, functools.partial(_is_of, folder.name))
    forget_links()


def forget_links() -> None:
    """Remove the links of runs whose records are in place, or whose folders were deleted."""
    for folder in _folders():
        place = run_record.folder(folder.name)
        if (place / RECORD).is_file() or not place.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # not there, or not empty
        FOLDER.rmdir()


def _is_of(run_id, record):
    return record["run_id"] == run_id


def _folders() -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from sorted(path for path in FOLDER.iterdir() if path.is_dir())


def _link(path, name):
    try:
        os.link(path, name)
    except OSError:  # a file system without hard links
        shutil.copy2(path, name)


def _replace(path, target):
    if target.exists() and target.samefile(path):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    _link(path, target)
