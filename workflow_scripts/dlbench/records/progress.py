"""The progress of a run, from the head and the tail of its log.

Only these are read, so that it is fast for a log of any length, also while the log is written.
"""

import contextlib
import itertools
import json
import math
import mmap
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import phrases
from dlbench.log import event_fields, event_log
from dlbench.records import step_times
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

    Args:
        items_per_second: of the whole run; None: the recent rate.
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
    """Whether some process of a run took a step, or completed.

    Args:
        log: path of rank 0's log.
    """
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
