"""A profile of a run: the trace of a few further steps, after all that is measured.

- The steps come after run_end, which says how the run ended: whatever goes wrong with a profiler,
  the run has its result. They are trained as the last ones were; the weights that they change were
  compared before, and nobody keeps them.
- All processes take the steps, for they exchange gradients. The first one is traced; of copies
  (copies_per_node) it is the first copy, and the others take none.
- `trace.json.gz` beside the log is in the format that dlbench/log/operations.py describes,
  whichever framework traced. The event `profile` has its digest and its operations, or says why
  there is none.
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
from dlbench.common.files import sha256, written_whole
from dlbench.log import event_log, operations
from dlbench.log.event_log import EventLog
from dlbench.trainer import schedule
from dlbench.trainer.engine import Engine
from dlbench.trainer.schedule import Schedule
from dlbench.trainer.strategy import BaseStrategy, Spec

STEPS = 5
MOST_CHARACTERS = 300  # of a text that goes with an event
# An operation of TensorFlow's executor as its profiler names it: of which node, and which kind.
_NODE = re.compile(r"[^:\s]+:_?([A-Z]\w*)")
_NUMBER = re.compile(r"([._]\d+)+$")  # which of the operations of one kind, in names of XLA's
_COPY, _SET = "Memcpy", "Memset"
DEVICE, STREAM, OPERATIONS = "/device:", "Stream", "XLA Ops"  # how names of tracks begin


def unsupported(run: Spec, strategy: type[BaseStrategy]) -> str | None:
    """Why a run cannot have a profile, or None.

    Args:
        strategy: its class.
    """
    if run.profile and not strategy.first_computes:
        return (
            f"strategy {run.strategy} has no profile: the process that would be traced computes "
            "nothing, it deals out the steps; leave profile out"
        )
    return None


def profile(spec: Spec, engine: Engine, log: EventLog, folder: Path) -> None:
    """Take a few further steps; the first process traces them and writes the event `profile`.

    Args:
        spec: the run's fields as attributes.
        engine: that of this process, which has taken all steps of the run.
        log: of this process.
        folder: where the trace is to lie.
    """
    steps = _Steps(spec, engine)
    if engine.strategy.rank:
        with contextlib.suppress(Exception):  # of any framework: the run has ended well before
            steps()
        return
    begin = time.perf_counter()
    try:
        found = _traced(engine, steps, folder)
    except Exception as error:
        found = {"unknown": terminal.message(f"{type(error).__name__}: {error}", 200)}
        with contextlib.suppress(Exception):
            steps()  # those that are left: the other processes wait for this one
    log.write("profile", spent_s=round(time.perf_counter() - begin, 6), **found)


class _Steps:
    """The further steps, in windows as long as those of the run may be; a call takes what is left.

    Attributes:
        count: how many there are.
    """

    def __init__(self, spec: Spec, engine: Engine):
        last = Schedule(spec, engine.records).total
        first = max(1, last - STEPS + 1)  # their learning rates are those of the run's last steps
        each = schedule.requested_length(spec, engine.strategy, bool(engine.visible_gpu_count)) == 1
        self.count = last - first + 1
        self._engine, self._last = engine, last
        self._left = [(n, n) for n in range(first, last + 1)] if each else [(first, last)]

    def __call__(self) -> None:
        while self._left:
            self._engine.window(*self._left.pop(0), until=self._last)


def _traced(engine: Engine, steps: _Steps, folder: Path) -> dict[str, Any]:
    """Trace the steps and keep that. Returns the fields of the event."""
    path = folder / event_log.TRACE
    with tempfile.TemporaryDirectory(prefix=".profile-", dir=folder) as spare:
        events = engine.profile(steps, Path(spare))
    with written_whole(path) as part, gzip.open(part, "wt", encoding="utf-8") as file:
        file.write(json.dumps({"displayTimeUnit": "ms", "traceEvents": events}))
    return {
        "steps": steps.count,
        "bytes": path.stat().st_size,
        "sha256": sha256(path),
        "operations": operations.read(path),
    }


class Track(NamedTuple):
    """What was done on one thread of the host, or on one stream of a device, by XLA's profiler.

    Attributes:
        process, thread: their names, as in `/host:CPU` and `/device:GPU:0`.
        events: (name, begin in picoseconds, picoseconds, further values by name) of each.
    """

    process: str
    thread: str
    events: list[tuple[str, int, int, dict[str, Any]]]


def chrome(tracks: Iterable[Track]) -> list[dict[str, Any]]:
    """The events of a trace from those of XLA's profiler, which TensorFlow and JAX share.

    Times count from the first event. Of a device its streams are kept; other tracks there say the
    same once more, summed up.
    """
    there = [track for track in tracks if track.events]
    streamed = {track.process for track in there if track.thread.startswith(STREAM)}
    kept = [track for track in there if _tells(track, track.process in streamed)]
    zero_ps = min((begin for track in kept for _, begin, _, _ in track.events), default=0)
    processes: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    for tid, track in enumerate(kept, start=1):
        pid = processes.setdefault(track.process, len(processes) + 1)
        place = {"pid": pid, "tid": tid}
        names = (("process_name", track.process), ("thread_name", track.thread))
        events += [{"ph": "M", **place, "name": n, "args": {"name": text}} for n, text in names]
        events += _complete(track, place, zero_ps)
    return events


def _tells(track, streamed):
    """Whether a track is one of a host, or a stream, or the operations of a device without."""
    if not track.process.startswith(DEVICE):
        return True
    return track.thread.startswith(STREAM) if streamed else track.thread == OPERATIONS


def _complete(track: Track, place: dict[str, int], zero_ps: int) -> Iterator[dict[str, Any]]:
    on_device = track.process.startswith(DEVICE)
    for name, begin_ps, took_ps, values in track.events:
        category, operation = _kind(name, values, on_device)
        plain = {key: _short(value) for key, value in values.items() if _is_plain(key, value)}
        yield {
            "ph": "X",
            **place,
            "name": _short(name),
            "ts": (begin_ps - zero_ps) / 1e6,
            "dur": took_ps / 1e6,
            **({"cat": category} if category else {}),
            "args": plain | ({"operation": operation} if operation else {}),
        }


def _kind(name, values, on_device):
    """(category, operation) of an event; "" where it is none or its name says it."""
    of_xla = values.get("hlo_op")
    if on_device and name.startswith(_COPY):
        return "gpu_memcpy", ""
    if on_device and name.startswith(_SET):
        return "gpu_memset", ""
    if on_device:
        return "kernel", _NUMBER.sub("", name) if of_xla else ""
    if of_xla:
        return "cpu_op", _NUMBER.sub("", str(of_xla))
    node = _NODE.fullmatch(name)
    return ("cpu_op", node[1]) if node else ("", "")


def _is_plain(key, value):
    """Whether a value is one to be kept; a name with an underline is the profiler's own."""
    return not key.startswith("_") and isinstance(value, str | int | float)


def _short(value):
    return terminal.message(value, MOST_CHARACTERS) if isinstance(value, str) else value
