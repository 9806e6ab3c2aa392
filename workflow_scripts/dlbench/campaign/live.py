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
from typing import Any, NamedTuple

from dlbench.campaign.status import duration
from dlbench.common import terminal
from dlbench.log.event_log import FAILED
from dlbench.plan.plan import Plan
from dlbench.records import costs, run_record
from dlbench.starting import fates, run_lines
from dlbench.study.runs import Run

REFRESH_S = 2.0  # the bar is drawn by the machine that is measured: it must cost it nothing
BAR_WIDTH = 30
# What hides the reason of an error: all files of code, which rules have as inputs, and no message.
NO_REASON = re.compile(r"\n *(input: .*|message: None)(?=\n|$)")
SHOWN = re.compile(r"\| tee .*>&2")  # the end of the command of a job that prints its log


class Job(NamedTuple):
    """A job of Snakemake; `run`: that it trains or records, if it does."""

    run: Run | None
    name: str
    prints_line: bool  # here: not a run on this machine, or what collects files
    started_s: float


class Live:
    """Prints what a user wants to know of the events of a campaign.

    Args:
        handler: Snakemake's own, for errors, warnings and commands.
        options: Snakemake's settings of what is printed.
    """

    def __init__(self, plan: Plan, handler: logging.Handler, options: Any) -> None:
        self.plan, self._handler, self._options = plan, handler, options
        self._table = options.dryrun  # of jobs, which Snakemake prints twice
        self._known: dict[int, Job] = {}  # by Snakemake's number
        self._open: dict[int, Job] = {}  # those that are started
        self._statuses: dict[str, str] = {}  # of the runs that ended
        self._took_s: dict[str, float | None] = {}
        self._submits = False
        self._began_s = time.monotonic()
        self._done_s: float | None = None  # when all runs will be done; estimated as one ends
        is_quiet = "progress" in map(str, options.quiet or ())
        has_bar = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._erase = run_lines.ERASE * (has_bar and not is_quiet and not options.dryrun)
        self._lock, self._closing = threading.RLock(), threading.Event()
        self._estimate()
        if self._erase:
            os.environ[run_lines.BAR] = "1"  # runs print no line at their start
            threading.Thread(target=self._redraw, daemon=True).start()

    def show(self, record: logging.LogRecord) -> None:
        """Print what a user wants to know of a record."""
        values, event = vars(record), getattr(record, "event", None)
        with self._lock:
            if event == "job_info":
                self._start(values)
            elif event == "job_finished":
                self._end(values["job_id"])
            elif event in ("job_error", "group_error"):
                self._show_error(record, values.get("job_error_info") or [values])
            elif event == "resources_info" and "nodes" in values:
                self._submits = True
                os.environ.pop(run_lines.BAR, None)  # jobs elsewhere print into files
            elif event == "run_info":
                if self._table:
                    self._pass(record)
                self._table = False
            elif event == "shellcmd":
                if self._options.printshellcmds:
                    self._pass(record)
            elif not event or event == "error":
                self._pass(record)
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
            trains = any(job.run for job in self._known.values())
            if self._known.keys() > self._open.keys() and (trains or done):
                of_them = f", {failed} of them failed" if failed else ""
                took = duration(time.monotonic() - self._began_s)
                self._print(f"{done} of {total} runs done{of_them}, {took}")
            sys.stderr.write(self._erase)
            self._erase = ""

    def bar(self, width: int) -> str:
        """The bar: the numbers of runs, the time to go and what is running."""
        done, failed, total = self._counted()
        started = [job.run for job in self._open.values() if job.run]
        running = [run for run in started if not self._submits or _log(run).is_file()]
        filled = round(BAR_WIDTH * done / max(1, total))
        parts = [f"{'━' * filled}{'─' * (BAR_WIDTH - filled)} {done}/{total} runs"]
        waiting, left = len(started) - len(running), total - done - len(started)
        numbers = {"failed": failed, "running": len(running), "in the queue": waiting, "left": left}
        parts += [f"{number} {what}" for what, number in numbers.items() if number]
        if done < total:
            left_s = self._done_s and max(0.0, self._done_s - time.monotonic())
            parts.append(
                "time to go not known yet" if left_s is None else f"{duration(left_s)} to go"
            )
        for run in running[:1]:
            latest = costs.latest(_log(run))
            step = f": step {latest.step}/{latest.total_steps}" if latest else ""
            parts.append(terminal.plain(f"{self.plan.labels[run.id]}{step}"))
        return " · ".join(parts)[:width]

    def _pass(self, record):
        """Print a record as Snakemake does, errors too, which --quiet rules would hide.

        Control characters of others are left out.
        """
        text = terminal.plain(NO_REASON.sub("", self._handler.format(record)))
        sys.stderr.write(self._erase)
        level = {"levelno": record.levelno, "levelname": record.levelname}
        self._handler.emit(logging.makeLogRecord({"msg": text, **level}))

    def _print(self, text):
        print(f"{self._erase}{terminal.plain(text)}", file=sys.stderr, flush=True)

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
        # Rules without a shell command collect files; those of sessions are not a user's concern.
        is_shown = bool(values.get("shellcmd")) and "session" not in wildcards
        prints_line = self._submits and not values.get("local") if run else is_shown
        name = " ".join((values["rule_name"], *wildcards.values()))
        job = Job(run, name, prints_line, time.monotonic())
        self._open[values["jobid"]] = self._known[values["jobid"]] = job
        if not run:  # which may print
            sys.stderr.write(self._erase)

    def _end(self, number):
        """Count a job that ended, and print its line if it does not print one itself."""
        job = self._open.pop(number, None) or self._known[number]
        line = f"{job.name}: done, {duration(time.monotonic() - job.started_s)}"
        if job.run:
            record, log = _record(job.run), _log(job.run)
            self._statuses[job.run.id] = record["status"] if record else ""
            self._estimate()
            rate = record and record["summary"].get("images_per_second")
            end = record and run_lines.describe_end(log, record, costs.duration_s(log), rate)
            line = end and self._line(job.run, end)
        if line and job.prints_line:
            self._print(line)

    def _line(self, run, end):
        return run_lines.line(self.plan.position(run.id), self.plan.labels[run.id], end)

    def _show_error(self, record, failed):
        jobs = [self._open.pop(info["jobid"], None) for info in failed]
        lines = [self._fate(job.run) for job in jobs if job and job.run and self._submits]
        if any(lines):
            self._print("\n".join(filter(None, lines)))
            return
        formatter: Any = self._handler.formatter
        formatter.show_failed_logs = self._options.show_failed_logs or not all(
            SHOWN.search(info.get("shellcmd") or "") and not self._submits for info in failed
        )
        self._pass(record)

    def _fate(self, run):
        """The line on an attempt that the scheduler ended; "" if it did not, or does not say so."""
        attempt = fates.current_attempt(_log(run))
        states = fates.query_schedulers(filter(None, [attempt.job]))
        state = states.get(attempt.job)
        if state is None or state.status not in ("interrupted", "oom", "timeout"):
            return ""
        return self._line(run, fates.describe([attempt], states))

    def _to_do(self):
        """The ids of the runs that this machine can do and that have not ended."""
        left_out = self._statuses.keys() | self.plan.skipped.keys()
        return [run_id for run_id in list(self.plan.pending) if run_id not in left_out]

    def _counted(self):
        """Numbers of the runs that this machine can do: done, of them failed in this start, all."""
        total = len(self.plan.runs.keys() - self.plan.skipped.keys())
        failed = sum(status in FAILED for status in self._statuses.values())
        return total - len(self._to_do()), failed, total

    def _estimate(self):
        """Estimate when all runs will be done, from those that are."""
        to_do, runs = self._to_do(), self.plan.runs
        for run_id in runs.keys() - set(to_do) - self._took_s.keys():  # each log is read once
            self._took_s[run_id] = costs.full_duration_s(_log(runs[run_id]))
        estimates = costs.Estimates(runs.values(), lambda run: self._took_s.get(run.id))
        each_s = [estimates.of(runs[run_id])[0] for run_id in to_do]
        at_a_time = max(1, sum(bool(job.run) for job in self._open.values()))
        known = None not in each_s
        self._done_s = time.monotonic() + costs.together_s(each_s, at_a_time) if known else None


def _log(run):
    return run_record.folder(run.id) / "train.jsonl"


def _record(run):
    with contextlib.suppress(run_record.RecordError, OSError):
        return run_record.read(run_record.folder(run.id) / "run.json")
    return None
