"""The training log: JSON lines, one event a line, appended with one write each.

So a killed run leaves a readable log, and ranks never mix their lines: each
has a file of its own, `train.jsonl` for rank 0 and `train.rank1.jsonl` and so
on beside it. Copies of a run have logs as ranks do, by their numbers.

Events and their fields (times in seconds on a monotonic clock since run_start,
dates in UTC):
    launch      by start_run.py: command, made_from, container, network, limits, git_commit, session
    begin       t_utc: the trainer's first words; containment: the marker of the image it is in
    run_start   spec, versions, devices, host
    machine     on what and with what it runs (dlbench/machine/facts.py); another one after resume
    compile     trace_s: making the graph of the step; the first step compiles it
    ready, met  t_s, waited_s: of one of several copies, which start together
        (dlbench/trainer/copies.py)
    step        step, t_s, step_time_s, loss, learning_rate, warm_up, epoch
    eval        epoch, step, t_s, split, loss, scores of the task, examples
    sampling    interval_s, gpus: what is sampled, and what cannot be
    sample      what process, node and GPUs use (dlbench/trainer/sampling.py)
    checkpoint  step, t_s
    resume      step, t_s, t_utc, host, devices: the run goes on from a checkpoint
    run_end     status, message, weights_sha256, energy_j, cpu_time_s, peak_memory_bytes;
                t_s: when the work was done, which is before the trainer has shut down;
                hung, time_limit_s of a timeout, where the supervisor wrote it
    neighbours  by start_run.py, last: what others used meanwhile (dlbench/starting/neighbours.py)
A log that was resumed goes on after the checkpoint; what came after it is gone.

Whoever reads a log gets its events from here, and may take for granted what
dlbench/log/event_fields.py says of their fields.
"""

import itertools
import json
import math
import os
import re
import time
from datetime import datetime, timezone
from pathlib import Path

from dlbench.common.files import name_file
from dlbench.log import event_fields
from dlbench.log.event_fields import UTC_FORMAT, LogError

SCORES = ("top1", "top5", "iou", "perplexity")  # of the last evaluation

LOG_VERSION = 1
STOPPED_BY_SIGNAL = "stopped by a signal"  # the message of a trainer that was
MOST_LINE_BYTES = 16 * 2**20  # a longer line is none of ours
FAILED = ("failed", "oom", "timeout")
_RANK = re.compile(r"\.rank(\d+)")


def rank_path(path, rank):
    """The log of one rank: `train.jsonl` -> `train.rank1.jsonl` for rank 1."""
    path = Path(path)
    return path if rank == 0 else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def rank_paths(path):
    """The logs of all ranks that exist, in the order of the ranks."""
    path = Path(path)
    pattern = re.compile(rf"{re.escape(path.stem)}{_RANK.pattern}{re.escape(path.suffix)}")
    others = [p for p in path.parent.iterdir() if pattern.fullmatch(p.name)]
    return [path, *sorted(others, key=rank_of)]


def rank_of(path):
    """Whose log this is, by its name: the opposite of `rank_path`."""
    found = _RANK.search(Path(path).name)
    return int(found[1]) if found else 0


def keep_aside(path):
    """Move the logs of all ranks to `train.attempt1.jsonl` and so on, as the next number.

    Returns:
        Where the first one is now.
    """
    path = Path(path)
    taken = {p.name.split(".")[1] for p in path.parent.glob(f"{path.stem}.attempt*{path.suffix}")}
    number = next(n for n in itertools.count(1) if f"attempt{n}" not in taken)
    for log in rank_paths(path):
        log.rename(_aside(log, number))
    return _aside(path, number)


def _aside(path, number):
    return path.with_name(path.name.replace(".", f".attempt{number}.", 1))


def utc_now():
    """The date as text, to the microsecond: `2026-11-21T01:02:03.000004Z`."""
    return datetime.now(timezone.utc).strftime(UTC_FORMAT)


def seconds_between(start, end):
    """Seconds between two dates as `utc_now` writes them."""
    start, end = (datetime.strptime(date, UTC_FORMAT) for date in (start, end))
    return (end - start).total_seconds()


class EventLog:
    """Appends events to one file. Times count from `start()`."""

    def __init__(self, path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self._start = time.perf_counter()

    def start(self, **values):
        """Write run_start and set the clock to zero."""
        self._start = time.perf_counter()
        self.write("run_start", log_version=LOG_VERSION, t_utc=utc_now(), **values)

    def resume(self, earlier, t_s, **values):
        """Go on with the log of an earlier part of the run.

        Args:
            earlier: its bytes up to the checkpoint. What this log holds already (how the
                run was started this time) comes after them.
            t_s: what the clock said then.
        """
        present = self.content()
        if b'"event": "run_start"' in present:
            present = b""  # the same log, with what was lost after the checkpoint
        # In place, for others may have it open.
        os.ftruncate(self._file, 0)
        self._append(earlier + present)
        self._start = time.perf_counter() - t_s
        self.write("resume", t_s=round(t_s, 6), t_utc=utc_now(), **values)

    def content(self):
        """The bytes written so far."""
        return os.pread(self._file, os.fstat(self._file).st_size, 0)

    def now(self):
        return time.perf_counter() - self._start

    def write(self, event, **values):
        line = json.dumps({"event": event, **{k: _plain(v) for k, v in values.items()}})
        self._append(f"{line}\n".encode())

    def step(self, step, t_s, step_time_s, loss, learning_rate, warm_up, epoch):
        """A step event, formatted by hand: it is written while the next step waits."""
        loss, learning_rate = map(_number, (loss, learning_rate))
        self._append(
            f'{{"event": "step", "step": {step}, "t_s": {t_s:.7f}, '
            f'"step_time_s": {step_time_s:.7f}, "loss": {loss}, '
            f'"learning_rate": {learning_rate}, '
            f'"warm_up": {"true" if warm_up else "false"}, "epoch": {epoch}}}\n'.encode(),
        )

    def close(self):
        os.close(self._file)

    def _append(self, content):
        view = memoryview(content)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            name_file(error, self._path)
            raise


def read(path):
    """Yield the events of one log.

    A last line without its newline is a write that a kill cut short: it is left
    out. Losses and scores that are no numbers come back as float nan or inf.

    Raises:
        LogError: any other line is not an event, lacks a field or has a wrong one, or does not
            follow the lines before it.
    """
    sequence = event_fields.Sequence()
    with open(path, "rb") as file:
        lines = iter(lambda: file.readline(MOST_LINE_BYTES), b"")
        for number, line in enumerate(lines, start=1):
            if len(line) == MOST_LINE_BYTES:
                raise LogError(
                    f"{path}, line {number}: longer than {MOST_LINE_BYTES} bytes: "
                    "not an event of a training log"
                )
            if not line.endswith(b"\n"):
                return
            try:
                event = event_fields.parsed(line)
                sequence.see(event)
            except LogError as error:
                raise LogError(f"{path}, line {number}: {error}") from error
            yield event


def ended(path):
    """The last run_end event of a log, or None where the run did not get there, or it is damaged.

    As in `read`, a last line without its newline is no event.
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
                return event_fields.parsed(line)
            except LogError:
                return None
    return None


def finished(path):
    """The last run_end of a log that is a result, or None.

    None too where the trainer says that a signal stopped it: whoever did that wants no result, and
    the supervisor, had it lived, would have moved the log aside.
    """
    end = ended(path)
    return None if end and end.get("message") == STOPPED_BY_SIGNAL else end


def _number(value):
    """A number as JSON has it; one that is not finite as text."""
    return repr(value) if math.isfinite(value) else f'"{value}"'


def _plain(value):
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
