"""How far runs are, how long they took, and how long similar runs will take.

- Progress is read from the head and the tail of a log only, so that it is fast for a log of any
  length, also while the log is written.
- A part of a run is what follows one launch. A run that resumed from a checkpoint has several in
  its log, and so may the log of an attempt that was moved aside. Parts are identified by the date
  of their launch, so that none counts twice.
- An estimate is the mean time of the runs of the same combination, else of the same model, dataset
  and strategy, else of all runs, and says which. Only completed runs count. A run that was
  stopped is estimated to take at least as long as it had taken by then.
"""

import contextlib
import csv
import functools
import itertools
import json
import math
import mmap
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import phrases
from dlbench.log import event_fields, event_log
from dlbench.log.attempts import kept_logs
from dlbench.records import run_record, step_times
from dlbench.study import wording
from dlbench.study.runs import Run
from dlbench.trainer.reading import inputs

MAX_HEAD_EVENTS = 64  # events but samples before the first step, among which run_start is
# Sizes of the tail to try: the event of a long window has the losses of all its steps, and a run
# that hangs goes on writing samples, each with numbers for all GPUs.
TAIL_BYTES = (4096, 65536, 1 << 20, 1 << 24)
_SAMPLE, _STEP, _WINDOWS = (b'{"event": "%s"' % name for name in (b"sample", b"step", b"windows"))


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes:
        loss: None for a run without a model.
        images_per_second: recent items per second; None during the warm-up.
        rate: the same with its unit, items or tokens.
        step_time_s: recent; None during the warm-up.
    """

    step: int
    total_steps: int
    loss: float | None
    images_per_second: float | None
    rate: str | None
    step_time_s: float | None


def latest(log: Path) -> Progress | None:
    """The Progress of a run; None before its first step, or if its log is damaged."""
    start, steps = _start(log), _last_steps(log)
    if not start or not steps:
        return None
    try:
        run = Run.from_spec(start["spec"])
    except Error:
        return None
    last = steps[-1]
    measured = [step for step in steps if not step["warm_up"]]
    count = step_times.count(measured)
    seconds = sum(map(step_times.window_s, measured))
    rate = run.global_batch * count / seconds if seconds > 0 else None
    return Progress(
        step=last["step"],
        total_steps=_total(log, run, start, last),
        loss=None if run.mode == inputs.INPUT_ONLY else float(last.get("loss", math.nan)),
        images_per_second=rate,
        rate=_describe_rate(rate, start.get("item_shape")),
        step_time_s=seconds / count if seconds > 0 else None,
    )


def describe(log: Path, items_per_second: float | None = None) -> str:
    """One phrase: steps done of all, loss, and rate, as far as the log has them.

    `items_per_second`: of the whole run; None: the recent rate.
    """
    progress = latest(log)
    if not progress:
        return "no step yet"
    text = f"step {progress.step}/{progress.total_steps}"
    if progress.loss is not None:
        text += f", loss {progress.loss:.4g}"
    rate = progress.rate
    if items_per_second is not None:
        rate = _describe_rate(items_per_second, (_start(log) or {}).get("item_shape"))
    return f"{text}, {rate}" if rate else text


def describe_output(folder: Path) -> str:
    """One phrase on a program of others: how much it has written into its folder, and when last."""
    written, last_s = 0, 0.0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # it has just been removed
            if path.is_file() and not path.name.startswith("."):
                status = path.stat()
                written += status.st_size
                last_s = max(last_s, status.st_mtime) if status.st_size else last_s
    if not written:
        return "it has printed nothing yet"
    ago_s = max(0.0, time.time() - last_s)
    return f"it has written {phrases.four_digits(written / 1e3)} kB, the last {ago_s:.0f} s ago"


class Activity:
    """When a log last got an event other than a sample, which a thread writes even in a hang."""

    def __init__(self, log: Path, started: float) -> None:
        self.log, self._offset, self._last_s = log, 0, started
        self._windows = self._step = b""  # the latest events of these kinds

    def last_s(self, now: float) -> float:
        """When the last call saw a new event, on the clock of `now`."""
        with contextlib.suppress(OSError), open(self.log, "rb") as file:
            if os.fstat(file.fileno()).st_size < self._offset:
                self._offset = 0  # the run resumed from a checkpoint, which restores the log
            file.seek(self._offset)
            lines = file.read(1 << 20)
            self._offset += len(lines)
            for line in lines.split(b"\n"):
                if line and not line.startswith(_SAMPLE):
                    self._last_s = now
                    self._windows = line if line.startswith(_WINDOWS) else self._windows
                    self._step = line if line.startswith(_STEP) else self._step
        return self._last_s

    def further_steps_s(self) -> float:
        """Seconds of all steps but one of a window, by the latest window; 0 if unknown."""
        if self._windows and self._step:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # half a line
                steps = json.loads(self._windows)["steps_per_sync"]
                return (steps - 1) * json.loads(self._step)["step_time_s"]
        return 0.0


def _total(log, run, start, last):
    """The number of the last step; of a timed warm-up that goes on, the least that it may be."""
    total = start.get("total_steps") or last["step"]
    if not run.warmup_s:
        return total
    if last["warm_up"]:
        total = max(total, last["step"] + (run.steps or 0))
    with (
        contextlib.suppress(OSError, event_fields.LogError),
        open(log, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as lines,
    ):
        return event_log.total_after_warm_up(lines) or total
    return total


def _describe_rate(items_per_second, shape):
    if items_per_second is None:
        return None
    unit = wording.rate_unit([shape])
    return f"{phrases.four_digits(items_per_second * unit.per_item)} {unit.plural}/s"


def took_step(log: Path) -> bool:
    """Whether some process of a run took a step, or completed. `log`: path of rank 0's log."""
    return any(
        _last_steps(path) or (event_log.last_run_end(path) or {}).get("status") == "ok"
        for path in event_log.rank_paths(log)
    )


def duration_s(log: Path) -> float | None:
    """Seconds from launch to run_end; None if the log lacks one of them."""
    launch, end = next(iter(head(log)), {}), event_log.last_run_end(log) or {}
    with contextlib.suppress(KeyError, TypeError):
        return event_log.seconds_between(launch["t_utc"], end["t_utc"])
    return None


def head(log: Path) -> list[dict[str, Any]]:
    """The first events of a log, up to run_start, without samples, of which others have hours."""
    events: list[dict[str, Any]] = []
    with contextlib.suppress(OSError, event_fields.LogError), open(log, "rb") as file:
        lines = (line for line in file if not line.startswith(_SAMPLE) and line.endswith(b"\n"))
        for line in itertools.islice(lines, MAX_HEAD_EVENTS):
            events.append(event_fields.parse_event(line))
            if events[-1]["event"] == "run_start":
                break
    return events


def _start(log):
    return next((event for event in head(log) if event["event"] == "run_start"), None)


def _last_steps(log):
    """The step events in the end of a log."""
    with contextlib.suppress(OSError, event_fields.LogError), open(log, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        for tail_bytes in TAIL_BYTES:
            file.seek(max(0, size - tail_bytes))
            if (steps := list(_step_events(file.read()))) or tail_bytes >= size:
                return steps
    return []


def _step_events(lines):
    for line in lines.splitlines(keepends=True):
        if line.startswith(b'{"event": "step"') and line.endswith(b"\n"):
            with contextlib.suppress(event_fields.LogError):  # not an event
                yield event_fields.parse_event(line)


BASES = ("same combination", "same model, dataset and strategy", "all runs")
OWN_STEPS = "their own steps"  # of running runs
# What runs are estimated from, by basis.
SOURCES = {
    OWN_STEPS: "their own progress",
    BASES[0]: "runs of the same combination",
    BASES[1]: "runs of the same model, dataset and strategy",
    BASES[2]: "all runs of the study",
}
UNKNOWN = "unknown"
DATED = tuple(
    f'{{"event": "{kind}"'.encode()
    for kind in ("launch", "begin", "run_start", "resume", "run_end")
)


def parts(log: Path) -> dict[str, float]:
    """Seconds of each part of a log, up to its last event, by the date of the part's launch."""
    parts_s: dict[str, float] = {}
    lines: list[bytes] = []
    with contextlib.suppress(OSError), open(log, "rb") as file:
        for line in file:
            if line.startswith(DATED[0]):
                _add(lines, parts_s)
                lines = []
            # Of the others, the last one only: it says when the part ended.
            if lines and not lines[-1].startswith(DATED):
                lines.pop()
            if line.endswith(b"\n"):
                lines.append(line)
    _add(lines, parts_s)
    return parts_s


def _add(lines, parts_s):
    launched = ended = anchor = None
    for line in lines:
        # What is no event, or has no date, tells nothing.
        with contextlib.suppress(event_fields.LogError, KeyError, TypeError, ArithmeticError):
            event = event_fields.parse_event(line)
            if event["event"] == "launch":
                launched = event["t_utc"]
            elif "t_utc" in event:
                ended = event_log.seconds_between(launched, event["t_utc"])
                if event["event"] in ("run_start", "resume"):
                    anchor = ended - event.get("t_s", 0)
            elif anchor is not None:
                ended = max(ended, anchor + event["t_s"])
    if launched:
        parts_s[launched] = max(0.0, ended or 0.0)


def attempts(place: Path) -> dict[str, float]:
    """The parts of all logs that were moved aside in a run's folder."""
    parts_s: dict[str, float] = {}
    for _, path in kept_logs(place):
        parts_s = longer_parts(parts_s, parts(path))
    return parts_s


def longer_parts(some: dict[str, float], others: dict[str, float]) -> dict[str, float]:
    """The parts of two logs; of a part in both, the longer one, as checkpoints copy logs."""
    return {date: max(some.get(date, 0.0), others.get(date, 0.0)) for date in {*some, *others}}


def until_now(parts_s: dict[str, float]) -> dict[str, float]:
    """The parts of a running run; the last one lasts until now."""
    if not parts_s:
        return parts_s
    last = max(parts_s)
    now = datetime.now(timezone.utc).strftime(event_fields.UTC_FORMAT)
    return {**parts_s, last: max(parts_s[last], event_log.seconds_between(last, now))}


def full_duration_s(log: Path) -> float | None:
    """Seconds from launch to end of a completed run without interruptions; else None.

    For a run that resumed this is about the time of an uninterrupted run. Only the head and the
    tail of the log are read.
    """
    end = event_log.last_run_end(log) or {}
    if end.get("status") not in event_fields.SUCCEEDED:
        return None
    dates: dict[str, Any] = {event["event"]: event.get("t_utc") for event in head(log)}
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return event_log.seconds_between(dates["launch"], dates["run_start"]) + end["t_s"]
    return sum(parts(log).values()) or None


def stopped_after_s(run: Run) -> float:
    """Seconds that a run had taken when it was stopped, as at its time limit; 0 if it was not."""
    log = run_record.folder(run.id) / "train.jsonl"
    end = event_log.last_run_end(log)
    if not log.is_file() or (end and end.get("status") != "timeout"):
        return 0.0
    return duration_s(log) or sum(parts(log).values())


def benchmarks(results: Path) -> list[Path]:
    """Snakemake's benchmarks of what runs need; those of figures change with each drawing."""
    found = sorted(results.glob("benchmarks/*/*.tsv"))
    return [path for path in found if path.parent.name != "draw_figure"]


def prepared_s(results: Path) -> dict[str, float]:
    """{rule that makes what runs need: seconds of its jobs}, by Snakemake's benchmarks."""
    spent_s: dict[str, float] = {}
    for path in benchmarks(results):
        with contextlib.suppress(KeyError, TypeError, ValueError, csv.Error):  # damaged
            rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines(), delimiter="\t")
            seconds = sum(float(row["s"]) for row in rows)
            spent_s[path.parent.name] = spent_s.get(path.parent.name, 0.0) + seconds
    return spent_s


def recorded_s(record: dict[str, Any]) -> float:
    """Seconds that a run took according to its record: start, imports and training."""
    parts = (record["summary"].get(name) for name in ("start_s", "import_s", "duration_s"))
    return sum(filter(None, parts))


def estimates(runs: Iterable[Run]) -> "Estimates":
    """The Estimates from the logs on this disk, each read when it is first needed."""

    @functools.cache
    def existing_ids():
        with contextlib.suppress(OSError):
            return frozenset(os.listdir(run_record.RESULTS / "runs"))
        return frozenset()

    return Estimates(
        (run for run in runs if run.id in existing_ids()),
        lambda run: full_duration_s(run_record.folder(run.id) / "train.jsonl"),
        lambda run: stopped_after_s(run) if run.id in existing_ids() else 0.0,
    )


class Estimates:
    """Estimates of the seconds that runs will take, from those that other runs took.

    Args:
        runs: the runs to estimate from; iterated once, at the first estimate.
        seconds_of: run -> the seconds it took, or None; called only for runs that are needed.
        stopped_of: run -> the seconds it had taken when it was stopped, or 0.
    """

    def __init__(
        self,
        runs: Iterable[Run],
        seconds_of: Callable[[Run], float | None],
        stopped_of: Callable[[Run], float] = lambda run: 0.0,
    ) -> None:
        self._runs, self._seconds_of, self._stopped_of = runs, seconds_of, stopped_of
        self._known: dict[str, float | None] = {}
        self._means: dict[Any, float | None] = {}

    def of(self, run: Run) -> tuple[float | None, str]:
        """(seconds, basis of the estimate); (None, "unknown") if no run has finished."""
        for basis, key in zip(BASES, self._keys(run), strict=True):
            mean = self._mean(key)
            if mean is not None:
                stopped_s = self._stopped_of(run)
                return (mean, basis) if mean >= stopped_s else (stopped_s, BASES[0])
        return None, UNKNOWN

    def _mean(self, key):
        if key not in self._groups:
            return None
        if key not in self._means:
            seconds_of_each = [self._seconds(run) for run in self._groups[key]]
            known = [seconds for seconds in seconds_of_each if seconds is not None]
            self._means[key] = statistics.fmean(known) if known else None
        return self._means[key]

    def _seconds(self, run):
        if run.id not in self._known:
            self._known[run.id] = self._seconds_of(run)
        return self._known[run.id]

    @functools.cached_property
    def _groups(self):
        groups = {}
        for run in self._runs:
            for key in self._keys(run):
                groups.setdefault(key, []).append(run)
        return groups

    @staticmethod
    def _keys(run):
        return run.combination, (run.model, run.dataset, run.strategy), None


def remaining(
    run: Run, latest: Progress | None, elapsed_s: float | None, estimates: Estimates
) -> tuple[float | None, str]:
    """(seconds that a run still takes, basis of that estimate).

    Args:
        latest: of a running run.
        elapsed_s: since a running run was started; None: it is not running.
    """
    by_steps = remaining_by_steps(latest)
    if by_steps is not None:
        return by_steps, OWN_STEPS
    seconds, basis = estimates.of(run)
    if seconds is not None and elapsed_s is not None:
        seconds = max(0.0, seconds - elapsed_s)
    return seconds, basis


def remaining_by_steps(latest: Progress | None) -> float | None:
    """Seconds that the remaining steps of a running run take; None if too few are measured."""
    if not latest or latest.step_time_s is None:
        return None
    return max(0, latest.total_steps - latest.step) * latest.step_time_s


def together_s(each_s: Collection[float], at_a_time: int) -> float:
    """Seconds until runs are over that still take `each_s`, some at a time.

    It is at least as long as the longest run takes, however many are trained at a time.
    """
    return max(sum(each_s) / at_a_time, *each_s, 0.0)


def describe_forecast(runs: Iterable[Run], estimates: Estimates, time_limit_s: float) -> str:
    """One line on the cost of training some runs. `time_limit_s`: after which a run is stopped."""
    runs = list(runs)
    if not runs:
        return "cost: no run to train"
    most = node_hours(time_limit_s * sum(run.nodes for run in runs) / 3600)
    prefix = f"cost: {phrases.counted(len(runs), 'run')} to train"
    expected = [estimates.of(run) for run in runs]
    bases = Counter(basis for _, basis in expected)
    if UNKNOWN in bases:
        return f"{prefix}, at most {most} by time_limit_s; an estimate follows from the first runs"
    node_s = sum(
        run.nodes * (seconds or 0.0) for run, (seconds, _) in zip(runs, expected, strict=True)
    )
    bases_text = describe_bases({basis: bases[basis] for basis in BASES})
    about = f"about {node_hours(node_s / 3600)} ({bases_text})"
    return f"{prefix}, {about}, at most {most} by time_limit_s"


def node_hours(hours: float) -> str:
    return f"{hours:.3g} node-hours"


def describe_bases(bases: dict[str, int]) -> str:
    """A phrase with the bases of some estimates.

    >>> describe_bases({"their own steps": 1, "same combination": 11, "all runs": 0})
    'estimated for 1 run from its own progress, for 11 runs from runs of the same combination'

    `bases`: {basis: number of runs that are estimated in this way}.
    """
    estimated = (
        f"for {phrases.counted(number, 'run')} from {_source(basis, number)}"
        for basis, number in bases.items()
        if number
    )
    return f"estimated {', '.join(estimated)}"


def _source(basis, number):
    return SOURCES[basis].replace("their", "its") if number == 1 else SOURCES[basis]
