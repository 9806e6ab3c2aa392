"""The campaign of this start as it stands now: which runs ended, which are running, what is left.

It follows the jobs that Snakemake starts and ends. While a thread draws it, others change it: what
is iterated is copied. The time that is left is estimated as `dlbench status` does, from the steps
of running runs and from the times of similar runs.
"""

import contextlib
import time
from dataclasses import dataclass
from typing import Any

from dlbench.common import phrases
from dlbench.log.event_log import FAILED
from dlbench.plan.plan import Plan
from dlbench.records import costs, progress, run_record
from dlbench.records.judgement import State
from dlbench.study.runs import Run

# The least seconds between two estimates, and how many times the time that one takes: planning
# thousands of runs must not take a core from the run that is timed.
ESTIMATE_EVERY_S, ESTIMATE_SHARE = 5.0, 200


@dataclass(frozen=True)
class Job:
    """A job of Snakemake.

    Attributes:
        run: that it trains, skips or reads again; None if it does something else.
        is_local: whether it is on the machine of Snakemake although others are submitted.
        is_shown: whether a user wants to know that it ended.
    """

    rule: str
    wildcards: tuple[str, ...]
    run: Run | None
    is_local: bool
    is_shown: bool
    started_s: float

    @property
    def name(self) -> str:
        """The rule and what it is for, as in draw_figure scaling."""
        return " ".join((self.rule, *self.wildcards))


@dataclass(frozen=True)
class Counts:
    """Numbers of the runs that this machine can do; done are also those of earlier starts."""

    done: int
    failed: int  # among those done in this start
    running: int
    waiting: int  # submitted, without a log
    left: int  # not started
    total: int


class LiveCampaign:
    """The campaign of this start.

    Args:
        plan: of this start.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.jobs: dict[int, Job] = {}  # those that are started, by Snakemake's number
        self.submits = False
        self._known: dict[int, Job] = {}
        self._statuses: dict[str, str] = {}  # of the runs that ended
        self._took_s: dict[str, float] = {}
        self._left_s: float | None = None
        self._estimated_at = self._next_at = 0.0

    def started(self, number: int, info: dict[str, Any]) -> Job:
        """A job was started, or submitted.

        Args:
            info: the attributes of Snakemake's event job_info.
        """
        wildcards = dict(info.get("wildcards") or {})
        run = self.plan.runs.get(wildcards.get("run_id", ""))
        # Rules without a shell command collect files; those of sessions are not a user's concern.
        is_shown = bool(info.get("shellcmd")) and "session" not in wildcards
        job = Job(
            info["rule_name"],
            tuple(wildcards.values()),
            run,
            bool(info.get("local")),
            is_shown,
            time.monotonic(),
        )
        self.jobs[number] = self._known[number] = job
        return job

    def ended(self, number: int) -> Job | None:
        """A job ended well. Returns it, or None if it is not known."""
        job = self.jobs.pop(number, None) or self._known.get(number)
        if job and job.run:
            self._statuses[job.run.id] = (self.record(job.run) or {}).get("status", "")
            self._next_at = 0.0
        return job

    def end_recorded(self) -> None:
        """Count runs that ended without a word of Snakemake, as while it waits after Ctrl-C."""
        for number, job in self._known.items():
            if job.run and job.run.id not in self._statuses and self.record(job.run):
                self.ended(number)

    def failed(self, number: int) -> Job | None:
        """A job failed; Snakemake may start it again. Returns it, or None if it is not known."""
        return self.jobs.pop(number, None)

    def record(self, run: Run) -> dict[str, Any] | None:
        """The record of a run; None if there is no valid one."""
        with contextlib.suppress(run_record.RecordError, OSError):
            return run_record.read(run_record.folder(run.id) / "run.json")
        return None

    def counts(self) -> Counts:
        plan, ended = self.plan, self._statuses
        can_run = plan.runs.keys() - plan.skipped.keys()
        started = [job.run for job in list(self.jobs.values()) if job.run and job.run.id in can_run]
        running = sum(map(self._has_log, started))
        pending = {run_id for run_id in list(plan.pending) if run_id in can_run - ended.keys()}
        total = len(can_run)
        return Counts(
            done=total - len(pending),
            failed=sum(status in FAILED for status in list(ended.values())),
            running=running,
            waiting=len(started) - running,
            left=max(0, len(pending) - len(started)),
            total=total,
        )

    def left_s(self) -> float | None:
        """Estimated seconds until all runs are over; None as long as no run has finished."""
        now = time.monotonic()
        if now >= self._next_at:
            self._left_s, self._estimated_at = self._estimate(), now
            took_s = time.monotonic() - now
            self._next_at = now + max(ESTIMATE_EVERY_S, ESTIMATE_SHARE * took_s)
        if self._left_s is None:
            return None
        return max(0.0, self._left_s - (now - self._estimated_at))

    def describe_running(self, most: int = 1) -> str:
        """What is going on: the first jobs, by what they do, and how many more there are."""
        jobs = sorted(list(self.jobs.values()), key=lambda job: (job.run is None, job.started_s))
        shown = [job for job in jobs if job.run or job.is_shown]
        texts = [self._describe(job) for job in shown[:most]]
        if len(shown) > most:
            texts.append(f"and {phrases.counted(len(shown) - most, 'more job')}")
        return "; ".join(texts)

    def _describe(self, job):
        if not job.run:
            return job.name
        latest = progress.latest(run_record.folder(job.run.id) / "train.jsonl")
        label = self.plan.labels[job.run.id]
        return f"{label}: step {latest.step}/{latest.total_steps}" if latest else label

    def _has_log(self, run):
        """Whether a run has begun: on a cluster its job may still be waiting."""
        return not self.submits or (run_record.folder(run.id) / "train.jsonl").is_file()

    def _estimate(self):
        started = {job.run.id: job for job in list(self.jobs.values()) if job.run}
        took_s, latest = self._times(), {}
        for run_id, job in started.items():
            latest[run_id] = progress.latest(run_record.folder(run_id) / "train.jsonl")
            by_steps_s = costs.remaining_by_steps(latest[run_id])
            if by_steps_s is not None:
                took_s[run_id] = time.monotonic() - job.started_s + by_steps_s
        runs = self.plan.runs
        estimates = costs.Estimates(runs.values(), lambda run: took_s.get(run.id))
        each_s = []
        for run_id, (state, _) in list(self.plan.pending.items()):
            if run_id in self._statuses or run_id in self.plan.skipped or state is State.UNREAD:
                continue
            job = started.get(run_id)
            elapsed_s = time.monotonic() - job.started_s if job else None
            seconds, _ = costs.remaining(runs[run_id], latest.get(run_id), elapsed_s, estimates)
            if seconds is None:
                return None
            each_s.append(seconds)
        return costs.together_s(each_s, max(1, self.counts().running))

    def _times(self):
        """{run id: seconds that it took} of the finished runs; the log of each is read once."""
        pending = self.plan.pending
        for run_id in list(self.plan.runs):
            if run_id not in self._took_s and (run_id in self._statuses or run_id not in pending):
                log = run_record.folder(run_id) / "train.jsonl"
                self._took_s[run_id] = costs.full_duration_s(log) or 0.0
        return {run_id: seconds for run_id, seconds in self._took_s.items() if seconds}
