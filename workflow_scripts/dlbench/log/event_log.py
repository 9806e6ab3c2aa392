"""The training log: JSON lines, one event a line, each appended with one write.

So a killed run leaves a readable log. Each rank writes its own file, `train.jsonl` for rank 0 and
beside it `train.rank1.jsonl` and so on; so does each copy of a run, by its number.

Events and their fields (times in seconds on a monotonic clock since run_start,
dates in UTC):
    launch      by start_run.py: command, made_from, container, network, limits, git_commit, session
    begin       t_utc: when the trainer started; containment: the marker of its image
    stage       t_utc, name: the end of a stage before run_start: imports, data (opened), other
                (what page_cache tells)
    page_cache  asked: cold or warm; files, bytes, kept_before, kept: of the dataset, and the share
                of it in memory; spent_s (dlbench/trainer/reading/page_cache.py)
    run_start   spec, versions, devices, host; forward_flops_per_item, forward_values_per_item,
                recomputed_flops_per_item, flops_unknown: what the model computes
                (dlbench/trainer/model_flops.py)
    machine     its hardware and software (dlbench/machine/facts.py); once more after resume
    nccl        version, network, transports, nvls, algorithms: what NCCL used, on GPUs
                (dlbench/machine/nccl_log.py)
    compile     t_s, trace_s: tracing the graph of the step; the first step compiles it
    ready, met  t_s, waited_s: one of several copies, which start together
        (dlbench/trainer/copies.py)
    windows     step, steps_per_sync: number of steps of a window from here on, if several; if it
                was measured, also single_step_s, window_step_s, probe_steps
                (dlbench/trainer/schedule.py)
    warm_up     step, passed_s: after which the warm-up's least time had passed; last_step: of the
                warm-up; total_steps: of the run, those included that were added to run_start's
    step        step, t_s, step_time_s, loss, learning_rate, warm_up, epoch; for a window of several
                steps: of the last one, with the mean time, window_steps, losses of all;
                learning_rates of all if they differ
    eval        epoch, step, t_s, split, loss, scores of the task, examples
    sampling    interval_s, gpus: which GPUs are sampled, and why others are not
    sample      use by the process, the node and the GPUs (dlbench/trainer/sampling.py)
    metric      name, value, unit, better: a number that the program names (dlbench/log/metrics.py)
    checkpoint  step, t_s
    checkpoint_written  step, t_s, bytes of all ranks; write_s, from checkpoint to there; waited_s,
                of them without steps
    resume      step, t_s, t_utc, host, devices: the run continues from a checkpoint
    run_end     status, message, weights_sha256, cpu_time_s, peak_memory_bytes; energy_j,
                host_energy_j and their quality (dlbench/machine/energy.py);
                peak_allocated_bytes_per_device, peak_reserved_bytes_per_device (lists),
                device_memory_unknown, device_memory_limit_bytes: by the framework's count
                (dlbench/trainer/engine.py);
                t_s: the end of the work, before the trainer shuts down;
                hung, time_limit_s of a timeout, if the supervisor wrote it;
                before_first_step: it failed for a transient reason and measured nothing
    profile     steps, spent_s, bytes, sha256: of the trace of a few more steps, which is beside
                the log as TRACE; unknown: why there is none
                (dlbench/trainer/profiling.py)
    parts       step, seconds: what parts of the steps of a window took, as data_wait; by programs
                that use programs/logger/dlbench_log.py, as is `logger` in run_start
    remark      message: what went wrong in logging; only in the logs of such programs
    calibration tflops, gb_per_s: attainable rates of the device, measured after the run; kept:
                whether after an earlier run; unknown: why there are none
                (dlbench/trainer/calibration.py)
    neighbours  by start_run.py, last: use by others meanwhile (dlbench/starting/neighbours.py);
                t_utc: when the trainer had ended
    power_meter by start_run.py: node_energy_j and its quality, scope, command without secrets,
                power_least_w, power_mean_w, power_most_w, trouble: what went wrong with the meter
    power_limit by start_run.py: asked_w; gpus: for each the limit before, the one enforced and
                still enforced at the end, whether the first is restored
                (dlbench/starting/power.py)
Resuming removes the events after the checkpoint from the log.

All readers of logs use `read`; dlbench/log/event_fields.py checks the fields.
"""

import itertools
import json
import math
import mmap
import os
import re
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from os import PathLike
from pathlib import Path
from typing import Any

from dlbench.common.files import add_filename
from dlbench.log import event_fields
from dlbench.log.event_fields import UTC_FORMAT, Event, LogError

SCORES = ("top1", "top5", "iou", "perplexity")  # of the last evaluation

LOG_VERSION = 1
TRACE = "trace.json.gz"  # of a profile, beside the log
STOPPED_BY_SIGNAL = "stopped by a signal"  # the message of such a trainer
MAX_LINE_BYTES = 16 * 2**20  # of an event
FAILED = ("failed", "oom", "timeout")
_RANK = re.compile(r"\.rank(\d+)")


def rank_path(path: str | PathLike[str], rank: int) -> Path:
    """The log of one rank: `train.jsonl` -> `train.rank1.jsonl` for rank 1."""
    path = Path(path)
    return path if rank == 0 else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def rank_paths(path: str | PathLike[str]) -> list[Path]:
    """The log of rank 0 and those of the other ranks that exist, in the order of the ranks."""
    path = Path(path)
    pattern = re.compile(rf"{re.escape(path.stem)}{_RANK.pattern}{re.escape(path.suffix)}")
    others = [p for p in path.parent.iterdir() if pattern.fullmatch(p.name)]
    return [path, *sorted(others, key=rank_of)]


def rank_of(path: str | PathLike[str]) -> int:
    """The rank of a log, by its name: the inverse of `rank_path`."""
    match = _RANK.search(Path(path).name)
    return int(match[1]) if match else 0


def keep_aside(path: str | PathLike[str]) -> Path:
    """Rename the logs of all ranks and a trace to `train.attempt1.jsonl` and so on, by number.

    The new path of the log of rank 0 is returned.
    """
    path = Path(path)
    taken = {p.name.split(".")[1] for p in path.parent.glob(f"{path.stem}.attempt*{path.suffix}")}
    number = next(n for n in itertools.count(1) if f"attempt{n}" not in taken)
    for file in (*rank_paths(path), *traces(path)):
        file.rename(_aside(file, number))
    return _aside(path, number)


def traces(path: str | PathLike[str]) -> list[Path]:
    """The trace beside a log, if there is one."""
    trace = Path(path).with_name(TRACE)
    return [trace] if trace.is_file() else []


def _aside(path, number):
    return path.with_name(path.name.replace(".", f".attempt{number}.", 1))


def utc_now() -> str:
    """The date as text, to the microsecond: `2026-11-21T01:02:03.000004Z`."""
    return datetime.now(timezone.utc).strftime(UTC_FORMAT)


def seconds_between(start: str, end: str) -> float:
    """Seconds between two dates as `utc_now` writes them."""
    first, last = (datetime.strptime(date, UTC_FORMAT) for date in (start, end))
    return (last - first).total_seconds()


def shifted(date: str, by_s: float) -> str:
    """A date shifted by some seconds, as `utc_now` writes it.

    >>> shifted("2026-11-21T01:02:03.000004Z", -0.5)
    '2026-11-21T01:02:02.500004Z'
    """
    return (datetime.strptime(date, UTC_FORMAT) + timedelta(seconds=by_s)).strftime(UTC_FORMAT)


class EventLog:
    """Appends events to one file. Times count from `start()`."""

    def __init__(self, path: str | PathLike[str]) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        self._start = time.perf_counter()

    def start(self, **values: Any) -> None:
        """Write run_start and set the clock to zero."""
        self._start = time.perf_counter()
        self.write("run_start", log_version=LOG_VERSION, t_utc=utc_now(), **values)

    def begin(self) -> str:
        """Set the clock to zero, for a run_start that is written later; returns its date."""
        self._start = time.perf_counter()
        return utc_now()

    def shift(self, event: str, by_s: float) -> None:
        """Shift the times of all events of a kind; no other process may write meanwhile."""
        begins = f'{{"event": "{event}"'.encode()
        lines = self.content().splitlines(keepends=True)
        for number, line in enumerate(lines):
            if line.startswith(begins):
                values = json.loads(line)
                values["t_s"] = round(values["t_s"] + by_s, 6)
                lines[number] = _line(values.pop("event"), values)
        # In place, because other processes may have the file open.
        os.ftruncate(self._file, 0)
        self._append(b"".join(lines))

    def resume(self, earlier: bytes, t_s: float, **values: Any) -> None:
        """Continue the log of a resumed run.

        Args:
            earlier: the bytes of the log up to the checkpoint. The present content of this log (how
                the run was started this time) follows them.
            t_s: the time of the checkpoint on the clock of that log.
        """
        present = self.content()
        if b'"event": "run_start"' in present:
            present = b""  # the same log, with steps after the checkpoint
        # In place, because other processes may have the file open.
        os.ftruncate(self._file, 0)
        self._append(earlier + present)
        self._start = time.perf_counter() - t_s
        self.write("resume", t_s=round(t_s, 6), t_utc=utc_now(), **values)

    def content(self) -> bytes:
        """The bytes written so far."""
        return os.pread(self._file, os.fstat(self._file).st_size, 0)

    def now(self) -> float:
        """Seconds since `start()`."""
        return time.perf_counter() - self._start

    def write(self, event: str, **values: Any) -> None:
        """Append one event with its fields."""
        self._append(_line(event, values))

    def step(
        self,
        step: int,
        t_s: float,
        step_time_s: float,
        loss: float,
        learning_rate: float,
        warm_up: bool,
        epoch: int,
        window: str = "",
    ) -> None:
        """Append a step event; formatted without json for speed, because the next step waits.

        Args:
            step: the last step of its window; loss and learning rate are of this step.
            step_time_s: mean over the steps of the window.
            window: the result of `window_fields`.
        """
        self._append(
            f'{{"event": "step", "step": {step}, "t_s": {t_s:.7f}, '
            f'"step_time_s": {step_time_s:.7f}, "loss": {_number(loss)}, '
            f'"learning_rate": {_number(learning_rate)}, '
            f'"warm_up": {"true" if warm_up else "false"}, "epoch": {epoch}{window}}}\n'.encode(),
        )

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _append(self, content):
        view = memoryview(content)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            add_filename(error, self._path)
            raise


def _line(event, values):
    line = json.dumps({"event": event, **{k: _plain(v) for k, v in values.items()}})
    return f"{line}\n".encode()


def read(path: str | PathLike[str]) -> Iterator[Event]:
    """Yield the events of one log.

    A last line without its newline is an incomplete write and is left out. Losses and scores that
    are not finite come back as float nan or inf. Raises LogError: any other line is not an event,
    has a missing or wrong field, or cannot follow the lines before it.
    """
    sequence = event_fields.Sequence()
    with open(path, "rb") as file:
        lines = iter(lambda: file.readline(MAX_LINE_BYTES), b"")
        for number, line in enumerate(lines, start=1):
            if len(line) == MAX_LINE_BYTES:
                raise LogError(
                    f"{path}, line {number}: longer than {MAX_LINE_BYTES} bytes: "
                    "not an event of a training log"
                )
            if not line.endswith(b"\n"):
                return
            try:
                event = event_fields.parse_event(line)
                sequence.check(event)
            except LogError as error:
                raise LogError(f"{path}, line {number}: {error}") from error
            yield event


def last_run_end(path: str | PathLike[str]) -> Event | None:
    """The last run_end event of a log; None if there is none or its line is damaged.

    As in `read`, a last line without its newline is left out.
    """
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 65536))
            lines = file.read().splitlines(keepends=True)
    except FileNotFoundError:
        return None
    for line in reversed(lines):
        if line.startswith(b'{"event": "run_end"') and line.endswith(b"\n"):
            try:
                return event_fields.parse_event(line)
            except LogError:
                return None
    return None


def final_run_end(path: str | PathLike[str]) -> Event | None:
    """The last run_end event of a log, if it is a result; None otherwise.

    It is not a result if a signal stopped the trainer: the run was to stop, and the supervisor,
    unless it was killed too, would have renamed the log.
    """
    end = last_run_end(path)
    return None if end and end.get("message") == STOPPED_BY_SIGNAL else end


def total_after_warm_up(log: "bytes | mmap.mmap") -> int | None:
    """The number of a run's last step, once a warm-up of some time has ended; before that None."""
    begin = log.find(b'{"event": "warm_up"')
    end = log.find(b"\n", begin)
    if begin < 0 or end < 0:
        return None
    return event_fields.parse_event(log[begin:end]).get("total_steps")


def window_fields(losses: Sequence[float], learning_rates: Sequence[float]) -> str:
    """The fields of a step event that a window of several steps has, as JSON; "" for one step."""
    if len(losses) == 1:
        return ""
    fields = f', "window_steps": {len(losses)}, "losses": {_numbers(losses)}'
    if len(set(learning_rates)) > 1:
        fields += f', "learning_rates": {_numbers(learning_rates)}'
    return fields


def _numbers(values):
    return f"[{', '.join(map(_number, values))}]"


def _number(value):
    """A number as JSON; one that is not finite as a string."""
    return repr(value) if math.isfinite(value) else f'"{value}"'


def _plain(value):
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
