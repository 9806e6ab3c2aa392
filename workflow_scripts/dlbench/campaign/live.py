"""The terminal of a campaign: a line for each run and job as it ends, errors in full, and a bar.

It follows the events that Snakemake logs. Runs on this machine print their lines themselves
(dlbench/starting/run_lines.py); that of a job of a scheduler is printed here, from its record. The
bar is one line that the next line takes the place of; it is drawn while nothing but runs is at
work, since other jobs print what they like.
"""

import contextlib
import logging
import os
import re
import shutil
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench.campaign.status import duration
from dlbench.common import terminal
from dlbench.log.event_log import FAILED
from dlbench.plan.plan import Plan
from dlbench.records import costs, run_record
from dlbench.starting import fates, run_lines
from dlbench.study.runs import Run

REFRESH_S = 2.0  # the bar is drawn by the machine that is measured: it must cost it nothing
# The least seconds between two estimates of the time to go, and how many times what one takes.
ESTIMATE_EVERY_S, ESTIMATE_SHARE = 5.0, 200
BAR_WIDTH = 30
LOG_LINES, LOG_BYTES = 15, 2**16  # of the end of a failed job's log
# Snakemake's bookkeeping, which has no event of its own. All is in its log file.
BOOKKEEPING = re.compile(
    r"(None)?$|Assuming unrestricted shared filesystem|Building DAG of jobs|Using shell: |Provided "
    r"|host: |Rules claiming more threads|Conda environments: ignored|Elapsed time: |Reasons:|"
    r"Singularity containers: ignored|Group jobs: inactive|Select jobs to execute|"
    r"Touching output file|DAG of jobs will be updated|Updating checkpoint dependencies"
)
# What hides the reason of an error: all files of code, which rules have as inputs, and no message.
NO_REASON = re.compile(r"\n *(input: .*|message: None)(?=\n|$)")
SHOWN = re.compile(r"\| tee .*>&2")  # the end of the command of a job that prints its log
HIDDEN = frozenset(
    ("workflow_started", "run_info", "job_started", "resources_info", "group_info", "rulegraph",
     "debug_dag", "progress")
)  # fmt: skip
RED, YELLOW = "\x1b[31m", "\x1b[33m"


@dataclass(frozen=True)
class Job:
    """A job of Snakemake; `run`: that it trains, skips or reads again, if it does.

    `is_local`: it is on the machine of Snakemake although others are submitted; `is_shown`: a user
    wants to know that it ended.
    """

    name: str
    run: Run | None
    is_local: bool
    is_shown: bool
    started_s: float


class Live:
    """Prints the records of a campaign.

    Args:
        formatter: Snakemake's own, for errors and commands.
        options: Snakemake's settings of what is printed.
        bar: whether to show a bar, if there is a terminal.
    """

    def __init__(self, plan: Plan, formatter: logging.Formatter, options: Any, bar: bool) -> None:
        self.plan, self._formatter, self._options = plan, formatter, options
        self._quiet = "progress" in map(str, options.quiet or ())
        self._counts = options.dryrun  # the table of jobs, which Snakemake repeats
        self._known: dict[int, Job] = {}  # by Snakemake's number
        self._open: dict[int, Job] = {}  # those that are started
        self._statuses: dict[str, str] = {}  # of the runs that ended
        self._took_s: dict[str, float] = {}
        self._submits = self._trains = False
        self._began_s, self._ended = time.monotonic(), 0
        self._left_s: float | None = None
        self._estimated_s = self._next_s = 0.0
        can_draw = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
        self._colour = can_draw and not options.nocolor
        drawn = bar and can_draw and not self._quiet and not options.dryrun
        self._erase = run_lines.ERASE if drawn else ""
        self._lock, self._closing = threading.RLock(), threading.Event()
        if self._erase:
            os.environ[run_lines.BAR] = "1"  # runs print no line at their start
            threading.Thread(target=self._redraw, daemon=True).start()

    def show(self, record: logging.LogRecord) -> None:
        """Print what a user wants to know of a record."""
        values, event = vars(record), str(getattr(record, "event", None) or "")
        with self._lock:
            if event == "job_info":
                self._start(values)
            elif event == "job_finished":
                self._end(values["job_id"])
            elif event == "run_info" and self._counts:
                self._print(self._formatter.format(record))
                self._counts = False
            elif event == "shellcmd":
                if self._options.printshellcmds:
                    self._print(self._formatter.format(record))
            elif event in ("job_error", "group_error"):
                self._show_error(record, values)
            elif event == "resources_info" and "nodes" in values:
                self._submits = True
                os.environ.pop(run_lines.BAR, None)  # jobs elsewhere print into files
            elif event not in HIDDEN:
                self._show_message(record)
            self._draw()

    def close(self) -> None:
        """End the bar, and say how many runs are done."""
        with self._lock:
            self._closing.set()
            os.environ.pop(run_lines.BAR, None)
            for number, job in self._known.items():  # without a word of Snakemake after Ctrl-C
                if job.run and job.run.id not in self._statuses and _record(job.run):
                    self._end(number)
            done, failed, total = self._counted()
            if self._ended and (self._trains or done):
                of_them = f", {failed} of them failed" if failed else ""
                took = duration(time.monotonic() - self._began_s)
                self._print(f"{done} of {total} runs done{of_them}, {took}")
            sys.stderr.write(self._erase)
            self._erase = ""

    def bar(self, width: int) -> str:
        """The bar: the numbers of runs, the time to go and what is running."""
        done, failed, total = self._counted()
        pending = self._to_do()
        started = [job.run for job in self._open.values() if job.run]
        running = [run for run in started if not self._submits or _log(run).is_file()]
        left = len(set(pending) - {run.id for run in started})
        filled = round(BAR_WIDTH * done / max(1, total))
        parts = [f"{'━' * filled}{'─' * (BAR_WIDTH - filled)} {done}/{total} runs"]
        waiting = len(started) - len(running)
        numbers = {"failed": failed, "running": len(running), "in the queue": waiting, "left": left}
        parts += [f"{number} {what}" for what, number in numbers.items() if number]
        if done < total:
            left_s = self._time_to_go_s(pending, max(1, len(running)))
            to_go = "time to go not known yet" if left_s is None else f"{duration(left_s)} to go"
            parts.append(to_go)
        for run in running[:1]:
            latest = costs.latest(_log(run))
            step = f": step {latest.step}/{latest.total_steps}" if latest else ""
            parts.append(terminal.plain(f"{self.plan.labels[run.id]}{step}"))
        return " · ".join(parts)[:width]

    def _print(self, text, style=""):
        coloured = f"{style}{terminal.plain(text)}\x1b[0m" if style and self._colour else None
        sys.stderr.write(f"{self._erase}{coloured or terminal.plain(text)}\n")
        sys.stderr.flush()

    def _redraw(self):
        while not self._closing.wait(REFRESH_S):
            with self._lock, contextlib.suppress(Exception):  # as a log that is removed meanwhile
                self._draw()

    def _draw(self):
        of_runs = self._open and all(job.run for job in self._open.values())
        if self._erase and of_runs and not self._closing.is_set():
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"{self._erase}{self.bar(width)}\r")
            sys.stderr.flush()

    def _start(self, values):
        wildcards = dict(values.get("wildcards") or {})
        run = self.plan.runs.get(wildcards.get("run_id", ""))
        self._trains = self._trains or run is not None
        # Rules without a shell command collect files; those of sessions are not a user's concern.
        is_shown = bool(values.get("shellcmd")) and "session" not in wildcards
        name = " ".join((values["rule_name"], *wildcards.values()))
        job = Job(name, run, bool(values.get("local")), is_shown, time.monotonic())
        self._open[values["jobid"]] = self._known[values["jobid"]] = job
        if self._erase and not run:  # which may print
            sys.stderr.write(self._erase)

    def _end(self, number):
        """Count a job that ended, and print its line if it does not print one itself."""
        job = self._open.pop(number, None) or self._known.get(number)
        if not job:
            return
        self._ended += 1
        if not job.run:
            if job.is_shown and not self._quiet:
                self._print(f"{job.name}: done, {duration(time.monotonic() - job.started_s)}")
            return
        record, log = _record(job.run), _log(job.run)
        self._statuses[job.run.id] = (record or {}).get("status", "")
        self._next_s = 0.0
        if self._submits and not job.is_local and record:
            rate = record["summary"].get("images_per_second")
            end = run_lines.describe_end(log, record, costs.duration_s(log), rate)
            self._print(self._line(job.run, end))

    def _line(self, run, end):
        return run_lines.line(self.plan.position(run.id), self.plan.labels[run.id], end)

    def _show_message(self, record):
        if record.levelno >= logging.WARNING:
            style = RED if record.levelno >= logging.ERROR else YELLOW
            self._print(self._formatter.format(record), style)
        elif not BOOKKEEPING.match(str(record.msg or "").strip()):
            self._print(self._formatter.format(record))

    def _show_error(self, record, values):
        failed = values.get("job_error_info") or [values]
        jobs = [self._open.pop(info["jobid"], None) for info in failed]
        if ended := [line for job in jobs if (line := self._fate(job))]:
            self._print("\n".join(ended), RED)
            return
        self._print(NO_REASON.sub("", self._formatter.format(record)), RED)
        if values.get("indent") or self._options.show_failed_logs:
            return  # the logs of a job of a group were printed
        unseen = [i for i in failed if self._submits or not SHOWN.search(i.get("shellcmd") or "")]
        for path in dict.fromkeys(path for info in unseen for path in info.get("log") or ()):
            lines = "\n        ".join([f"    the end of {path}:", *end_of_file(Path(path))])
            self._print(lines)

    def _fate(self, job):
        """The line on an attempt that the scheduler ended; "" if it did not, or does not say so."""
        if not (job and job.run and self._submits):
            return ""
        attempt = fates.current_attempt(_log(job.run))
        states = fates.query_schedulers(filter(None, [attempt.job]))
        state = states.get(attempt.job)
        if state is None or state.status not in ("interrupted", "oom", "timeout"):
            return ""
        return self._line(job.run, fates.describe([attempt], states))

    def _to_do(self):
        """The ids of the runs that this machine can do and that have not ended."""
        left_out = self._statuses.keys() | self.plan.skipped.keys()
        return [run_id for run_id in list(self.plan.pending) if run_id not in left_out]

    def _counted(self):
        """Numbers of the runs that this machine can do: done, of them failed in this start, all."""
        total = len(self.plan.runs.keys() - self.plan.skipped.keys())
        failed = sum(status in FAILED for status in self._statuses.values())
        return total - len(self._to_do()), failed, total

    def _time_to_go_s(self, pending, at_a_time):
        """Estimated seconds until all runs are over; None as long as no run has finished."""
        now = time.monotonic()
        if now >= self._next_s:
            self._left_s, self._estimated_s = self._estimate(pending, at_a_time), now
            self._next_s = now + max(ESTIMATE_EVERY_S, ESTIMATE_SHARE * (time.monotonic() - now))
        return self._left_s and max(0.0, self._left_s - (now - self._estimated_s))

    def _estimate(self, pending, at_a_time):
        started_s = {job.run.id: job.started_s for job in self._open.values() if job.run}
        runs, took_s = self.plan.runs, self._took_s
        for run_id in runs.keys() - set(pending) - took_s.keys():  # the log of each is read once
            took_s[run_id] = costs.full_duration_s(_log(runs[run_id])) or 0.0
        estimates = costs.Estimates(runs.values(), lambda run: took_s.get(run.id) or None)
        each_s = []
        for run_id in pending:
            elapsed_s = time.monotonic() - started_s[run_id] if run_id in started_s else None
            latest = costs.latest(_log(runs[run_id])) if run_id in started_s else None
            seconds, _ = costs.remaining(runs[run_id], latest, elapsed_s, estimates)
            if seconds is None:
                return None
            each_s.append(seconds)
        return costs.together_s(each_s, at_a_time)


def end_of_file(path: Path) -> list[str]:
    """The last lines of a text file; a phrase if there are none."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - LOG_BYTES))
        found = terminal.plain(file.read().decode(errors="replace")).splitlines()[-LOG_LINES:]
        return found or ["(it is empty)"]
    return ["(there is no such file)"]


def _log(run):
    return run_record.folder(run.id) / "train.jsonl"


def _record(run):
    """The record of a run; None if there is no valid one."""
    with contextlib.suppress(run_record.RecordError, OSError):
        return run_record.read(run_record.folder(run.id) / "run.json")
    return None
