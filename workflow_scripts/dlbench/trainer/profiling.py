"""A profile of a run: the trace of a few more steps, after all that is measured.

- The steps follow run_end, so the run has its result even if the profiler fails. They are like the
  last steps of the run. The weights that they change have been compared before and are not saved.
- All processes do the steps, because they exchange gradients; rank 0 is traced. Of several copies
  (copies_per_node) the first is traced, and the others do no further steps.
- `trace.json.gz` beside the log is gzipped JSON in Chrome's trace format, which ui.perfetto.dev
  opens, whichever framework traced. A complete event (`ph` is X) is work in a track, which is a
  thread (`tid`) of a process (`pid`); `ts` and `dur` are microseconds. Categories (`cat`) are those
  of PyTorch's profiler: kernel, gpu_memcpy and gpu_memset by a device, cpu_op by the framework.
- The event `profile` has the digest of the trace, or the reason why there is none.
"""

import contextlib
import gzip
import json
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.common import terminal
from dlbench.common.files import atomic_write, sha256
from dlbench.log import event_log
from dlbench.log.event_log import EventLog
from dlbench.trainer import schedule
from dlbench.trainer.engine import Engine
from dlbench.trainer.schedule import Schedule
from dlbench.trainer.strategy import BaseStrategy, Spec

STEPS = 5
MAX_CHARACTERS = 300  # of a text value of an event
# An operation of TensorFlow's executor, as its profiler names it: node:kind.
_NODE = re.compile(r"[^:\s]+:_?[A-Z]\w*")
DEVICE, STREAM, OPERATIONS = "/device:", "Stream", "XLA Ops"  # prefixes of track names


def unsupported(run: Spec, strategy: type[BaseStrategy]) -> str | None:
    """Why a run of a class of strategy cannot have a profile; None if it can."""
    if run.profile and not strategy.first_computes:
        return (
            f"strategy {run.strategy} has no profile: rank 0, which would be traced, computes "
            "nothing, it only schedules the steps; leave profile out"
        )
    return None


def profile(spec: Spec, engine: Engine, log: EventLog, folder: Path) -> None:
    """Do a few more steps after the run's; rank 0 traces them and writes the event `profile`."""
    steps = _Steps(spec, engine)
    if engine.strategy.rank:
        with contextlib.suppress(Exception):  # of any framework: the run has completed before
            steps()
        return
    begin = time.perf_counter()
    try:
        fields = _traced(engine, steps, folder)
    except Exception as error:
        fields = {"unknown": terminal.message(f"{type(error).__name__}: {error}", 200)}
        with contextlib.suppress(Exception):
            steps()  # the remaining ones: the other processes wait for this one
    log.write("profile", spent_s=round(time.perf_counter() - begin, 6), **fields)


class _Steps:
    """The additional steps, `count` in all; a call does all that remain.

    They are done in windows if the run may have them.
    """

    def __init__(self, spec: Spec, engine: Engine):
        last = Schedule(spec, engine.records).total
        first = max(1, last - STEPS + 1)  # their learning rates are those of the run's last steps
        each = schedule.requested_length(spec, engine.strategy, bool(engine.gpu_count)) == 1
        self.count = last - first + 1
        self._engine, self._last = engine, last
        self._left = [(n, n) for n in range(first, last + 1)] if each else [(first, last)]

    def __call__(self) -> None:
        while self._left:
            self._engine.window(*self._left.pop(0), until=self._last)


def _traced(engine: Engine, steps: _Steps, folder: Path) -> dict[str, Any]:
    """Trace the steps and save the trace. Returns the fields of the event."""
    path = folder / event_log.TRACE
    with tempfile.TemporaryDirectory(prefix=".profile-", dir=folder) as spare:
        events = engine.profile(steps, Path(spare))
    with atomic_write(path) as part, gzip.open(part, "wt", encoding="utf-8") as file:
        file.write(json.dumps({"displayTimeUnit": "ms", "traceEvents": events}))
    return {
        "steps": steps.count,
        "bytes": path.stat().st_size,
        "sha256": sha256(path),
    }


class Track(NamedTuple):
    """The events of one thread of the host, or of one stream of a device, by XLA's profiler.

    An event is (name, start in picoseconds, duration in picoseconds, further values by name).
    """

    process: str  # as in `/host:CPU` and `/device:GPU:0`
    thread: str
    events: list[tuple[str, int, int, dict[str, Any]]]


def chrome(tracks: Iterable[Track]) -> list[dict[str, Any]]:
    """Convert events of XLA's profiler, which TensorFlow and JAX share, to those of a Chrome trace.

    Times count from the first event. Of a device only its streams are kept: its other tracks are
    summaries of these.
    """
    tracks = [track for track in tracks if track.events]
    streamed = {track.process for track in tracks if track.thread.startswith(STREAM)}
    relevant = [track for track in tracks if _is_relevant(track, track.process in streamed)]
    zero_ps = min((begin for track in relevant for _, begin, _, _ in track.events), default=0)
    processes: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    for tid, track in enumerate(relevant, start=1):
        pid = processes.setdefault(track.process, len(processes) + 1)
        place = {"pid": pid, "tid": tid}
        names = (("process_name", track.process), ("thread_name", track.thread))
        events += [{"ph": "M", **place, "name": n, "args": {"name": text}} for n, text in names]
        events += _complete(track, place, zero_ps)
    return events


def _is_relevant(track, streamed):
    """Whether a track is one of the host, a stream, or the operations of a device without any."""
    if not track.process.startswith(DEVICE):
        return True
    return track.thread.startswith(STREAM) if streamed else track.thread == OPERATIONS


def _complete(track: Track, place: dict[str, int], zero_ps: int) -> Iterator[dict[str, Any]]:
    on_device = track.process.startswith(DEVICE)
    for name, begin_ps, duration_ps, values in track.events:
        category = _category(name, values, on_device)
        yield {
            "ph": "X",
            **place,
            "name": _short(name),
            "ts": (begin_ps - zero_ps) / 1e6,
            "dur": duration_ps / 1e6,
            **({"cat": category} if category else {}),
            "args": {key: _short(value) for key, value in values.items() if _is_plain(key, value)},
        }


def _category(name, values, on_device):
    if on_device:
        return {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}.get(name[:6], "kernel")
    return "cpu_op" if values.get("hlo_op") or _NODE.fullmatch(name) else ""


def _is_plain(key, value):
    """Whether a value is kept; the profiler's internal ones have names with an underscore."""
    return not key.startswith("_") and isinstance(value, str | int | float)


def _short(value):
    return terminal.message(value, MAX_CHARACTERS) if isinstance(value, str) else value
