"""Start a program of others and watch it from outside, until it ends.

- Samples of it and of all processes that it starts, of the node and of the GPUs, as of our trainer
  (dlbench/trainer/sampling.py). They are of this node, the first of the run; so a run on several
  nodes has no energy.
- What it logs with programs/logger/dlbench_log.py is copied into the run's log meanwhile. Then the
  clock of that is the program's own, and samples of before its time 0 have times below 0.
- An event `output` whenever its files have grown, as a sign of life: what it prints, and what it
  writes into its folder.
- It is ended if it prints more than a disk and an importer can take.
- The signal by which the supervisor asks for a checkpoint is passed on to it.
"""

import contextlib
import os
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlbench.imports.logged_events import Relay
from dlbench.log import event_log
from dlbench.log.event_log import EventLog
from dlbench.machine import energy, gpu_readings, node_use
from dlbench.study import other_trainers
from dlbench.trainer import sampling

PROC = Path("/proc")
LOOK_EVERY_S = 2.0  # as a bar is drawn
MAX_PRINTED_BYTES = 2**30
GRACE_S = 5.0  # between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Watching:
    """How a program is watched.

    Attributes:
        sample_every_s: seconds between two samples; 0: none are taken.
        gpus: selectors of the GPUs of this node that it uses.
        nodes: of the run.
        stop_signal: name of the signal that it may answer by a checkpoint; None: it gets none.
    """

    sample_every_s: float = 0.0
    gpus: Sequence[int | str] = ()
    nodes: int = 1
    stop_signal: str | None = None


NO_SAMPLES = Watching()


@dataclass
class Ended:
    """How a program ended.

    Attributes:
        seconds: from its start to its end.
        too_much: why it was ended here; "" if it ended by itself.
        use: fields of run_end: energies, CPU time, memory.
        has_gpu_samples: whether all its GPUs were sampled.
    """

    exit_code: int
    seconds: float
    too_much: str = ""
    use: dict[str, Any] = field(default_factory=dict)
    has_gpu_samples: bool = False


def run(
    command: Sequence[str],
    folder: Path,
    events: EventLog,
    watching: Watching,
    variables: Mapping[str, str],
    relay: Relay,
) -> Ended:
    """Run a command to its end.

    Args:
        folder: where it may write further logs; what it prints goes there.
        events: whose clock starts with the program.
        variables: of its environment, beside those of this process.
        relay: copies what it logs.
    """
    samples = _Samples(events)
    with (
        open(folder / other_trainers.PRINTED, "ab") as output,
        _started(command, output, watching.stop_signal, variables) as program,
    ):
        sampler = _sampler(program.pid, samples, watching)
        sampled = sampler.start() if sampler else {}
        if sampled:
            events.write("sampling", **sampled)
        too_much, before, written = "", 0, 0
        with _end_of(program.pid) as ended:
            while program.poll() is None:
                # In step with the samples: a core that has just worked wakes up for less.
                ended(LOOK_EVERY_S - events.now() % LOOK_EVERY_S)
                printed = os.fstat(output.fileno()).st_size
                if printed > MAX_PRINTED_BYTES and not too_much:
                    too_much = (
                        f"it printed more than {MAX_PRINTED_BYTES >> 20} MiB: have it print less, "
                        "or write into a file elsewhere"
                    )
                    _end(program)
                _copy(relay, samples)
                # The folder, of which listing costs most, is listed only if nothing was printed.
                total = written + printed - before if printed > before else bytes_below(folder)
                if total > written and program.poll() is None:
                    events.write("output", t_s=round(events.now(), 3), bytes=total)
                before, written = printed, total
        seconds = round(events.now(), 6)
        _copy(relay, samples)
        use = sampler.stop() if sampler else {}
    return Ended(
        program.returncode,
        seconds,
        too_much,
        _of_all_nodes(use, watching.nodes),
        bool(sampled.get("gpus")) and not sampled["gpus_not_sampled"],
    )


def bytes_below(folder: Path) -> int:
    """The size of all files in a folder and in those below it."""
    total = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                total += bytes_below(Path(entry.path))
            else:
                with contextlib.suppress(OSError):  # it has just been removed
                    total += entry.stat().st_size
    return total


@contextlib.contextmanager
def _started(command, output, stop_signal, variables) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program, to which this process passes a signal on."""
    number = signal.Signals[stop_signal] if stop_signal else None
    received: list[int] = []  # before it was started
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(received_number, _):
        if not children:
            received.append(received_number)
        elif children[0].returncode is None:
            children[0].send_signal(received_number)

    before = signal.signal(number, pass_on) if number else None
    try:
        environ = os.environ | variables
        children.append(
            subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environ)
        )
        for each in received:
            children[0].send_signal(each)
        yield children[0]
    finally:
        if number:
            signal.signal(number, before)


@contextlib.contextmanager
def _end_of(pid):
    """Yield a function that waits some seconds, or less if a child ends meanwhile."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, AttributeError):  # a kernel before Linux 5.3
        yield lambda _: time.sleep(0.2)
        return
    try:
        yield lambda seconds: select.select([descriptor], [], [], seconds)
    finally:
        os.close(descriptor)


def _end(program):
    program.terminate()
    try:
        program.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def _copy(relay, samples):
    """Copy what a program has logged; with its first event, the samples get its clock."""
    relay.copy()
    if relay.start:
        samples.count_from(relay.start["t_utc"])


class _Samples:
    """Writes samples into a log, with times since its run_start, which may come later."""

    def __init__(self, events):
        self._events = events
        self._lock = threading.Lock()  # the sampler is a thread
        self._zero_s: float | None = None

    def now(self):
        return self._events.now()

    def write(self, event, **values):
        with self._lock:
            t_s = round(values["t_s"] - (self._zero_s or 0.0), 6)
            self._events.write(event, **{**values, "t_s": t_s})

    def count_from(self, date):
        """Let times of all samples, also of those that are written, count from a date; once."""
        with self._lock:
            if self._zero_s is None:
                ago_s = event_log.seconds_between(date, event_log.utc_now())
                self._zero_s = self._events.now() - ago_s
                self._events.shift("sample", -self._zero_s)


def _sampler(pid, samples, watching):
    """The Sampler of a program; None if no samples are to be taken."""
    if not watching.sample_every_s:
        return None
    supervisor = os.environ.get(gpu_readings.SUPERVISOR)
    mark = {gpu_readings.SUPERVISOR: supervisor} if supervisor else {}
    return sampling.Sampler(
        samples,
        watching.sample_every_s,
        watching.gpus,
        process=ProgramUse(pid, mark),
    )


def _of_all_nodes(use, nodes):
    """Fields of run_end for a run on several nodes, of which the samples are of the first."""
    if nodes == 1 or not use:
        return use
    unknown = f"samples are of the first of {nodes} nodes"
    of_gpus, of_host = (energy.fields(prefix, None, None, unknown) for prefix in ("", "host_"))
    return {**use, **of_gpus, **of_host, "cpu_time_s": None}


class ProgramUse:
    """CPU time and memory of a child of this process and of the processes that it starts.

    A Sampler reads it in place of its own process. Processes that a service starts, as srun's
    tasks, count if they carry the mark of the run. Linux only.

    Args:
        pid: of the child.
        mark: of the run's processes, as in `leftovers.mark`.
    """

    def __init__(
        self, pid: int, mark: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tree = node_use.ProcessTree(PROC, pid, mark, disks=False)
        self._clock = clock
        self._last: tuple[float, float] | None = None
        self._cpu_s, self._peak_bytes = 0.0, 0
        self._waited_for_s = _waited_for_s()

    def begin(self) -> None:
        """CPU time counts from the start of the program, so there is nothing to do."""

    def sample(self) -> dict[str, Any]:
        """`cpu_percent` since the last sample, 100 = one core, and `memory_bytes`."""
        cpu_s, _, _ = self._tree.sample()
        self._cpu_s = max(self._cpu_s, cpu_s)
        memory_bytes = self._tree.resident_bytes()
        self._peak_bytes = max(self._peak_bytes, memory_bytes)
        last, self._last = self._last, (self._clock(), self._cpu_s)
        percent = None
        if last and self._last[0] > last[0]:
            percent = round(100 * (self._cpu_s - last[1]) / (self._last[0] - last[0]), 2)
        return {"cpu_percent": percent, "memory_bytes": memory_bytes or None}  # 0: it has ended

    def cpu_time_s(self) -> float:
        """Of all processes; once the program has ended, also of its last moments."""
        return round(max(self._cpu_s, _waited_for_s() - self._waited_for_s), 6)

    def peak_memory_bytes(self) -> int:
        """The most at one of the samples."""
        return self._peak_bytes

    def close(self) -> None:
        """Nothing is open."""


def _waited_for_s():
    """CPU seconds of ended children, and of those for which these waited."""
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime
