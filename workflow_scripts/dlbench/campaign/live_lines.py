"""The lines of a campaign on the terminal, from Snakemake's events; and the bar below them.

A line for each run as it ends, one for each other job, warnings, and errors in full with the end
of the log. Runs on this machine print their line themselves (dlbench/starting/run_lines.py); that
of a run that is a job of a scheduler is printed here, from its record.
"""

import contextlib
import logging
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dlbench.campaign.live_campaign import LiveCampaign
from dlbench.campaign.live_screen import open_screen
from dlbench.campaign.status_text import duration
from dlbench.common import terminal
from dlbench.plan.plan import Plan
from dlbench.records import progress, run_record
from dlbench.starting import fates, run_lines

LOG_LINES = 15  # of the end of a failed job's log
LOG_BYTES = 2**16
# Snakemake's bookkeeping, which has no event of its own. All is in its log file.
BOOKKEEPING = re.compile(
    r"Assuming unrestricted shared filesystem|Building DAG of jobs|Using shell: |Provided |"
    r"host: |Rules claiming more threads|Conda environments: ignored|"
    r"Singularity containers: ignored|Group jobs: inactive|Select jobs to execute|"
    r"Touching output file|Elapsed time: |"
    r"DAG of jobs will be updated|Updating checkpoint dependencies|Reasons:"
)
# What hides the reason of an error: all files of code, which rules have as inputs, and no message.
NO_REASON = re.compile(r"\n *(input: .*|message: None)(?=\n|$)")
SHOWN = re.compile(r"\| tee .*>&2")  # the end of the command of a job that prints its log
HIDDEN = frozenset(
    ("workflow_started", "run_info", "job_started", "resources_info", "group_info", "rulegraph",
     "debug_dag", "progress")
)  # fmt: skip


class LiveLines:
    """Prints the records of a campaign.

    Args:
        formatter: Snakemake's own, for errors and commands.
        bar: whether to show a bar, if there is a terminal.
        jobs: whether to print a line for each job that is no run.
        commands: whether to print shell commands.
        failed_logs: whether the formatter prints the logs of failed jobs.
        colour: whether to use colours on a terminal.
        counts: whether to print the table of jobs, as of a dry run.
    """

    def __init__(
        self,
        plan: Plan,
        formatter: logging.Formatter,
        bar: bool = True,
        jobs: bool = True,
        commands: bool = False,
        failed_logs: bool = False,
        colour: bool = True,
        counts: bool = False,
    ) -> None:
        self._campaign = LiveCampaign(plan)
        self._formatter, self._jobs = formatter, jobs
        self._commands, self._failed_logs, self._counts = commands, failed_logs, counts
        self._began_s, self._ended = time.monotonic(), 0
        self._trains = False  # whether this start is about runs, as that of a history is not
        self._screen = open_screen(self._campaign, bar, colour)

    def show(self, record: logging.LogRecord) -> None:
        """Print what a user wants to know of a record."""
        values = vars(record)
        event = str(values.get("event") or "")
        if event == "job_info":
            job = self._campaign.started(values["jobid"], values)
            self._trains = self._trains or job.run is not None
        elif event == "job_finished":
            self._print(self._end_of(values["job_id"]))
        elif event == "shellcmd":
            self._print([self._formatter.format(record)] if self._commands else [])
        elif event == "run_info" and self._counts:
            self._print([self._formatter.format(record)])
            self._counts = False  # Snakemake repeats it
        elif event in ("job_error", "group_error"):
            self._show_error(record, values)
        elif event == "resources_info":
            if "nodes" in values:
                self._campaign.submits = True
                os.environ.pop(run_lines.BAR, None)  # jobs elsewhere print into files
        elif event not in HIDDEN and (record.levelno >= logging.WARNING or _is_news(record)):
            self._print([self._formatter.format(record)], _style(record))
        self._screen.refresh()

    def close(self) -> None:
        """End the bar, and say how many runs are done."""
        self._campaign.end_recorded()
        counts = self._campaign.counts()
        if self._ended and (self._trains or counts.done):
            failed = f", {counts.failed} of them failed" if counts.failed else ""
            took = duration(time.monotonic() - self._began_s)
            self._print([f"{counts.done} of {counts.total} runs done{failed}, {took}"], "bold")
        self._screen.close()

    def _print(self, lines: Iterable[str], style: str = "") -> None:
        for line in lines:
            self._screen.print(line, style)

    def _end_of(self, number):
        """Yield the line on a job that ended, if it does not print one itself."""
        job = self._campaign.ended(number)
        if not job:
            return
        self._ended += 1
        if job.run:
            record = self._campaign.record(job.run)
            if self._campaign.submits and not job.is_local and record:
                yield self._describe_run(job.run, record)
        elif self._jobs and job.is_shown:
            yield f"{job.name}: done, {duration(time.monotonic() - job.started_s)}"

    def _describe_run(self, run, record):
        log = run_record.folder(run.id) / "train.jsonl"
        rate = record["summary"].get("images_per_second")
        end = run_lines.describe_end(log, record, progress.duration_s(log), rate)
        plan = self._campaign.plan
        return run_lines.line(plan.position(run.id), plan.labels[run.id], end)

    def _show_error(self, record: logging.LogRecord, values: dict[str, Any]) -> None:
        failed = values.get("job_error_info") or [values]
        jobs = [self._campaign.failed(info["jobid"]) for info in failed]
        if ended := list(filter(None, map(self._describe_fate, jobs))):
            self._print(ended, "red")
            return
        self._print([NO_REASON.sub("", self._formatter.format(record))], "red")
        if values.get("indent") or self._failed_logs:  # a job of a group, whose logs were printed
            return
        logs = [path for info in failed for path in info.get("log") or () if self._unseen(info)]
        for path in dict.fromkeys(logs):
            self._print([f"    the end of {path}:"], "red")
            self._print([f"        {line}" for line in end_of_file(Path(path))])

    def _describe_fate(self, job):
        """The line on an attempt that the scheduler ended; "" if it did not, or does not say so."""
        if not (job and job.run and self._campaign.submits):
            return ""
        attempt = fates.current_attempt(run_record.folder(job.run.id) / "train.jsonl")
        state = fates.query_schedulers(filter(None, [attempt.job])).get(attempt.job)
        if state is None or state.status not in ("interrupted", "oom", "timeout"):
            return ""
        plan, text = self._campaign.plan, fates.describe(attempt, state)
        return run_lines.line(plan.position(job.run.id), plan.labels[job.run.id], text)

    def _unseen(self, info):
        """Whether what a failed job printed was not on this terminal."""
        return self._campaign.submits or not SHOWN.search(info.get("shellcmd") or "")


def end_of_file(path: Path, lines: int = LOG_LINES) -> list[str]:
    """The last lines of a text file; a phrase if there are none."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - LOG_BYTES))
        found = terminal.plain(file.read().decode(errors="replace")).splitlines()[-lines:]
        return found or ["(it is empty)"]
    return ["(there is no such file)"]


def _is_news(record):
    text = str(record.msg or "").strip()
    return text not in ("", "None") and not BOOKKEEPING.match(text)


def _style(record):
    if record.levelno >= logging.ERROR:
        return "red"
    return "yellow" if record.levelno >= logging.WARNING else ""
