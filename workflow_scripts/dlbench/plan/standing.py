"""The state of each run of a study, from its record, its logs and its scheduler's job.

The first of these that applies:
    ok, unstable, failed, oom, timeout, skipped    the status in its record, if that is valid
    running       its log has no run_end and is being written, see is_written; or it has no result
                  and the scheduler still has its job, running or waiting
    skipped       this machine cannot do it, or its image could not be made; the next start of the
                  workflow records that, or tries again
    pending       not trained yet, forgotten, or to be tried again
    unread        trained; its log is still to be parsed
    interrupted   its log has no run_end
    stale         trained by other code, on other data or in another environment, or its record or
                  log is damaged

Nothing is written, locked or started here. The state of a run is the one at the moment when its
files were read.

A job that exceeds a limit of the site, or is held, waits for ever, and so does Snakemake. A start
of the workflow prints reasons that do not pass by themselves, each once.
"""

import contextlib
import dataclasses
import functools
import socket
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from dlbench import schedulers
from dlbench.common import phrases, plugins, tools
from dlbench.data import stores
from dlbench.images import trainer_image
from dlbench.log import event_log
from dlbench.log.event_fields import SUCCEEDED
from dlbench.log.event_log import FAILED
from dlbench.plan import skipping
from dlbench.records import costs, judgement, run_record
from dlbench.records.judgement import State
from dlbench.starting import fates, start_command
from dlbench.study import goals
from dlbench.study.config import Study
from dlbench.study.runs import Run

LEFT = ("running", "pending", "interrupted", "stale")
STATES = (*SUCCEEDED, *LEFT, "unread", *FAILED, "skipped")
FRESH_S = 10.0  # a running log is written at least once a second, by its samples
EVERY_S = 60.0  # between two looks at why jobs do not start


@dataclass(frozen=True)
class Standing:
    """A run and its state now.

    Attributes:
        message: why it is in this state; "" if there is nothing to say.
        duration_s: seconds by its log. If it `ended_well`, estimates of other runs rest on it.
        used_s: seconds of all its attempts.
        aside_s: seconds of the attempts whose logs were moved aside.
        ended_well: whether its log says so, in whatever state the run is now.
        latest_progress: of a running run.
        missed: by how much it missed its learning gate; "" if it did not.
        attempts: those of the last session, if there is no result.
        session: id of the session in its record.
    """

    run: Run
    state: str
    message: str
    duration_s: float
    used_s: float
    aside_s: float
    ended_well: bool = False
    latest_progress: costs.Progress | None = None
    missed: str = ""
    attempts: tuple[fates.Attempt, ...] = ()
    session: str | None = None


def examine(study: Study) -> list[Standing]:
    """The Standing of each run, in the order of execution."""
    devices = skipping.devices(study.site)
    basis = basis_of(study)
    standings = [_standing(run, study, devices, basis) for run in study.runs]
    return _with_queue(_with_job_states(standings))


def basis_of(study: Study) -> judgement.Basis:
    """What decides whether results of a study are valid."""
    adopted = stores.recipes(stores.adopted(study, as_converted=True))
    return judgement.Basis(adopted, study.images, study.time_limit_s)


def _with_queue(standings):
    """The standings with the reasons for which the jobs of pending runs wait."""
    pending = any(standing.state in ("pending", "running") for standing in standings)
    waiting = waiting_reasons(Path.cwd()) if pending else {}
    return [
        dataclasses.replace(each, message="; ".join(filter(None, (each.message, reason))))
        if (reason := waiting.get(each.run.id)) and each.state in ("pending", "running")
        else each
        for each in standings
    ]


def _standing(run, study, devices, basis):
    skip = skipping.skip_reason(run, devices, study) or _image_failure(run)
    state, reason = judgement.state(run, not skip, basis)
    place = run_record.folder(run.id)
    if state is State.MISSING:
        return Standing(run, "skipped" if skip else "pending", skip or "", 0.0, 0.0, 0.0)
    log, aside = place / "train.jsonl", costs.attempts(place)
    try:
        record = run_record.read(place / "run.json")
    except run_record.RecordError:
        record = None
    if state is State.CURRENT and record is None:
        state, reason = State.STALE, "its record went while it was looked at"
    if state is State.CURRENT:
        name, message = record["status"], record["message"]
        whole = not record["summary"].get("resumes")
        ended_well = name in SUCCEEDED
    else:
        name, message = _unfinished(state, log, record, skip, study.hang_limit_s, reason)
        message, whole = message.replace(f"{place}/", ""), False
        ended_well = (event_log.last_run_end(log) or {}).get("status") in SUCCEEDED
    duration_s = costs.duration_s(log) if whole else None
    if duration_s is None:
        parts_s = costs.parts(log)
        parts_s = costs.until_now(parts_s) if name == "running" else parts_s
        duration_s, used_s = sum(parts_s.values()), sum(costs.longer_parts(parts_s, aside).values())
    else:
        used_s = duration_s + sum(aside.values())
    return Standing(
        run,
        name,
        message,
        duration_s,
        used_s,
        used_s - duration_s,
        ended_well,
        latest_progress=costs.latest(log) if name == "running" else None,
        missed=_missed(study.must_reach.get(run.id), name, record),
        attempts=_attempts(name, place, log),
        session=((record or {"provenance": {}})["provenance"].get("session") or {}).get("id"),
    )


def _image_failure(run):
    """Why the last try to make a run's image failed; None if it did not. The next start retries."""
    if not start_command.contained(run):
        return None
    return trainer_image.failure(trainer_image.form_path(run))


def _missed(must_reach, name, record):
    return (
        goals.describe_miss(must_reach, record["summary"])
        if must_reach and name in SUCCEEDED
        else ""
    )


def _attempts(name, place, log):
    if name == "interrupted":
        return (fates.current_attempt(log),)
    # A later refusal by the scheduler says more than the end of the last attempt.
    shows_attempts = name == "pending" and not fates.describe_refusal(place)
    return tuple(fates.latest_attempts(place)) if shows_attempts else ()


def _with_job_states(standings):
    """The standings with the ends of attempts without a result; running if their job still runs."""
    jobs = {each.job for s in standings for each in s.attempts if each.job}
    state_of_job = fates.query_schedulers(jobs)
    return [_with_job_state(each, state_of_job) if each.attempts else each for each in standings]


def _with_job_state(standing, state_of_job):
    job_state = state_of_job.get(standing.attempts[-1].job)
    message = fates.describe(standing.attempts, state_of_job)
    if job_state is None or job_state.status != "running":
        return dataclasses.replace(standing, message=message)
    log = run_record.folder(standing.run.id) / "train.jsonl"
    return dataclasses.replace(
        standing, state="running", message=message, latest_progress=costs.latest(log)
    )


def _unfinished(state, log, record, skip, hang_limit_s, reason):
    """(state, message) of a run that has a folder but no valid record."""
    log_exists, ended = log.is_file(), event_log.final_run_end(log)
    recorded = record is not None or (log.parent / "run.json").exists()
    if not ended and costs.head(log) and is_written(log, hang_limit_s):
        return "running", ""
    if state is State.UNREAD:
        return "unread", reason
    if skip:
        return "skipped", skip
    if not log_exists and not recorded:
        return "pending", fates.describe_refusal(log.parent)
    if log_exists and not ended and not recorded:
        return "interrupted", ""
    return "stale", reason


def is_written(log: Path, hang_limit_s: float) -> bool:
    """Whether a log without run_end is still being written.

    True if it, or another rank's, was written less than FRESH_S ago, or if its supervisor is a
    process on this machine. False if not, and the trainer ran on this machine. Otherwise (on
    another machine, or before run_start) true until hang_limit_s has passed.
    """
    quiet_s = time.time() - max(map(_written_at, event_log.rank_paths(log)), default=0.0)
    here = _supervised_here(int(time.time()))
    if quiet_s <= FRESH_S or (here and str(log.resolve()) in here):
        return True
    hosts = [event.get("host") for event in costs.head(log) if event["event"] == "run_start"]
    if here is not None and hosts == [socket.gethostname()]:
        return False
    return quiet_s <= hang_limit_s


def _written_at(path):
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


@functools.lru_cache(maxsize=1)
def _supervised_here(_second):
    """The logs that start_run.py supervises on this machine; None if processes are hidden."""
    logs = set()
    try:
        for process in psutil.process_iter(["cmdline"]):
            arguments = process.info["cmdline"] or []
            if "--log" in arguments[:-1] and any(
                word.endswith("start_run.py") for word in arguments
            ):
                with contextlib.suppress(
                    psutil.Error
                ):  # it has just ended, or belongs to another user
                    log = arguments[arguments.index("--log") + 1]
                    logs.add(str(Path(process.cwd(), log).resolve()))
    except (OSError, psutil.Error):
        return None
    return logs


def waiting_reasons(folder: Path) -> dict[str, str]:
    """{run id: why its job waits}, from all schedulers of this machine."""
    reasons = {}
    for name in plugins.names("schedulers"):
        module = plugins.load("schedulers", name)
        if tools.missing_program([(program,) for program in module.PROGRAMS]):
            continue
        runs = schedulers.runs_of_jobs(name, folder)
        for job_id, reason in module.waiting(runs).items():
            name_shown = schedulers.display_name(name)
            reasons[runs[job_id]] = f"{name_shown} has not started job {job_id}: {reason}"
    return reasons


def start_reporting(scheduler: str, folder: Path, every_s: float = EVERY_S) -> None:
    """Start a thread that prints why jobs do not start, until this process ends.

    Args:
        scheduler: name of a file in schedulers/.
        folder: of the workflow, from which the jobs are submitted.
    """

    def look():
        reported: set[str] = set()
        while True:
            with contextlib.suppress(Exception):  # it must not end a campaign
                for line in new_reasons(scheduler, folder, reported):
                    print(line, file=sys.stderr, flush=True)
            pause.wait(every_s)

    pause = threading.Event()
    threading.Thread(target=look, name="waiting jobs", daemon=True).start()


def new_reasons(scheduler: str, folder: Path, reported: set[str]) -> list[str]:
    """Messages on reasons that do not pass by themselves; `reported` keeps each from a repeat."""
    module = plugins.load("schedulers", scheduler)
    runs = schedulers.runs_of_jobs(scheduler, folder)
    jobs_by_reason: dict[str, list[str]] = {}
    for job_id, reason in module.waiting(runs).items():
        if not reason.startswith(module.NORMAL_REASONS) and reason not in reported:
            jobs_by_reason.setdefault(reason, []).append(job_id)
    reported.update(jobs_by_reason)
    name = schedulers.display_name(scheduler)
    return [_line(name, reason, jobs, runs[jobs[0]]) for reason, jobs in jobs_by_reason.items()]


def _line(name, reason, jobs, run_id):
    which = f"job {jobs[0]}{f' of {run_id}' if run_id else ''}"
    others = f" and {phrases.counted(len(jobs) - 1, 'other job')}" if len(jobs) > 1 else ""
    return (
        f"{name} does not start {which}{others}: {reason}; dlbench status shows what each run "
        "waits for"
    )
