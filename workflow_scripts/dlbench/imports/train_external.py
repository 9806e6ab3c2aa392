"""Train a run with another program: start it, watch it, parse its log, write our event log.

Such an event log has these events in addition to those of dlbench/log/event_log.py:
    machine     facts of the machine, gathered before the program starts
    output      t_s, bytes: size of its files whenever they have grown, as a sign of life
    parts       step, seconds: of parts of a step or window, by dlbench_log.py
    imported    kind, notes; numbers: columns of the runs table; contradicts: how they differ

- Samples of it and of all processes that it starts, of the node and of the GPUs, are as of our
  trainer (dlbench/trainer/sampling.py). They are of this node, the first of the run; so a run on
  several nodes has no energy.
- What it logs with programs/logger/dlbench_log.py is copied into the run's log meanwhile. Then the
  clock of that is the program's own, and samples of before its time 0 have times below 0.
- It is ended if it prints more than a disk and an importer can take.
- The signal by which the supervisor asks for a checkpoint is passed on to it.
"""

import contextlib
import dataclasses
import json
import math
import os
import platform
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import files, terminal
from dlbench.imports import import_logs, kinds, table_rows
from dlbench.imports.importers.dlbench import COPIED, Relay
from dlbench.log import event_log
from dlbench.log.event_log import EventLog
from dlbench.machine import energy, facts, gpus, redaction
from dlbench.starting import neighbours
from dlbench.study import contradictions, other_trainers
from dlbench.study.runs import FIELDS, Run
from dlbench.tables import cells
from dlbench.trainer import engine, sampling

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


def run_watched(
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
    """The size of all files in a folder and in those below it, of links without what they name."""
    total = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                total += bytes_below(Path(entry.path))
            else:
                with contextlib.suppress(OSError):  # it has just been removed
                    total += entry.stat(follow_symlinks=False).st_size
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
    if relay.first.start:
        samples.count_from(relay.first.start["t_utc"])


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
    supervisor = os.environ.get(gpus.SUPERVISOR)
    use = ProgramUse(pid, {gpus.SUPERVISOR: supervisor} if supervisor else {})
    return sampling.Sampler(samples, watching.sample_every_s, watching.gpus, process=use)


def _of_all_nodes(use, nodes):
    """Fields of run_end for a run on several nodes, of which the samples are of the first."""
    if nodes == 1 or not use:
        return use
    unknown = f"samples are of the first of {nodes} nodes"
    for prefix in energy.DOMAINS:
        if f"{prefix}energy_j" in use:
            use |= energy.fields(prefix, None, None, unknown)
    return {**use, "cpu_time_s": None}


class ProgramUse:
    """CPU time and memory of a child of this process and of the processes that it starts.

    A Sampler reads it in place of its own process. Processes that a service starts, as srun's
    tasks, count if they carry the mark of the run (`processes.mark`). Linux only.
    """

    def __init__(
        self, pid: int, mark: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tree = neighbours.ProcessTree(PROC, pid, mark, disks=False)
        self._clock = clock
        self._last: tuple[float, float] | None = None
        self._cpu_s, self._peak_bytes = 0.0, 0
        self._waited_for_s = _waited_for_s()

    def begin(self) -> None:
        """Nothing: CPU time counts from the start of the program."""

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


def _waited_for_s():
    """CPU seconds of ended children, and of those for which these waited."""
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


LAST_BYTES = 4096
# What TensorFlow, PyTorch, MXNet and JAX print when a device has no memory left.
OUT_OF_MEMORY = (
    *("OOM when allocating tensor", "CUDA out of memory", "cudaMalloc failed: out of memory"),
    *("OutOfMemoryError", "RESOURCE_EXHAUSTED: Out of memory", "CUDA_ERROR_OUT_OF_MEMORY"),
)


def train(
    run: Run,
    command: Sequence[str],
    kind: str | Mapping[str, Any],
    log: Path,
    image_id: str | None = None,
    watching: Watching = NO_SAMPLES,
) -> None:
    """Train a run with a command.

    Args:
        kind: name of the importer for the program's log, or auto; or the patterns by which what it
            prints is read.
        log: path of the event log. The program's log is in other_trainers.FOLDER beside it, or in
            that of its copy.
        image_id: id of the image in which the program must run; None on bare metal.
        watching: how the program is watched.

    Raises:
        Error: the program failed, for a reason that may be transient.
    """
    folder = log.parent / _folder(event_log.rank_of(log))
    files.make_empty_folder(folder)
    events = event_log.EventLog(log)
    machine = facts.gather(watching.gpus, variables=engine.variables())
    if image_id:
        # This process runs outside the image and shares only the kernel with the program.
        machine["software"] |= {"os": None, "glibc": None}
        machine["unknown"] |= dict.fromkeys(("software.os", "software.glibc"), "those of the image")
    else:
        machine["software"] |= facts.origin()
    events.write("machine", **machine)
    device_model = _device_model(machine, watching.gpus)
    logged = folder / other_trainers.LOGGED
    relay = Relay(run, logged, log, events, device_model, lambda: _bindings(folder))
    variables = other_trainers.log_variables(run, folder)
    started_at = events.begin()
    program = run_watched(command, folder, events, watching, variables, relay)
    ended_at, seconds = event_log.utc_now(), program.seconds
    if begun := relay.first.start.get("t_utc"):  # by the clock of the program's log
        since_s = max(0.0, event_log.seconds_between(begun, ended_at))
        seconds = relay.first.end.get("t_s") or since_s
    marker = files.read_json(folder / other_trainers.PROOF) if image_id else None
    events.write("begin", t_utc=relay.first.began or started_at, containment=marker)

    def finish(status, message):
        ended = {"status": status, "message": message, "t_utc": ended_at, "t_s": round(seconds, 6)}
        relay.finish(marker, **ended)
        events.write("run_end", **ended, **program.use)

    actual = (marker or {}).get("image_id", "no image")
    if image_id and actual != image_id:
        finish("failed", f"expected the image {image_id}, was in {actual}")
        return
    tail = _tail(folder / other_trainers.PRINTED)
    if program.too_much:
        finish("failed", program.too_much)
        return
    if program.exit_code and any(text in tail for text in OUT_OF_MEMORY):
        finish("oom", _last_line(tail))
        return
    if program.exit_code:
        sys.stderr.write(terminal.plain(tail))
        raise Error(f"{command[0]} ended with exit code {program.exit_code}: {_last_line(tail)}")
    try:
        if relay.trouble:
            raise Error(relay.trouble)
        imported = _read(run, folder, kind)
    except Error as error:
        finish("failed", redaction.redact(f"its log: {error}"))
        return
    _write_run(run, imported, events, started_at, program, folder, device_model, relay)
    ended = relay.first.end or {"status": imported.status, "message": imported.message}
    finish(ended["status"], redaction.redact(ended["message"]))


def of_copy(command: Sequence[str], log: Path, copy: int) -> tuple[list[str], Path]:
    """The command and the log of one of several copies, from those of the first.

    Each has a folder of its own for further logs.
    """
    first, own = (str(log.parent / _folder(number)) for number in (0, copy))
    return [word.replace(first, own) for word in command], event_log.rank_path(log, copy)


def _folder(copy):
    return f"{other_trainers.FOLDER}-{copy}" if copy else other_trainers.FOLDER


def _read(run, folder, kind):
    """The MergedRun of the logs in a folder.

    An Error if they have no run, several, or one that contradicts what was to be trained.
    """
    stated = {name: getattr(run, name) for name in other_trainers.COMPARED}
    if run.sequence_length:
        stated["item_shape"] = str(run.sequence_length)
    if isinstance(kind, str):
        return import_logs.read_run(folder, kind, stated)
    processes = run.nodes * engine.strategy_of(run).processes_per_node(run)
    patterns = kinds.of_config(kind, processes)
    return import_logs.read_run(folder, patterns, stated, other_trainers.PRINTED)


def _write_run(run, imported, events, started_at, program, folder, device_model, relay):
    """Write the MergedRun of a program's logs as events, but for what the relay has written.

    `device_model`: of the run, unless its log has it.
    """
    row = table_rows.run_row(imported, run.id, None, None)
    metrics = {
        name: value
        for name, value in row.items()
        if type(value) in (int, float) and name not in (*FIELDS, "devices", "global_batch")
    }
    is_relayed = bool(relay.first.start)
    if not is_relayed:
        events.write(
            "run_start",
            log_version=event_log.LOG_VERSION,
            t_utc=started_at,
            spec=dataclasses.asdict(run),
            versions={run.framework: row.get("framework_version")},
            device_model=row.get("device_model") or device_model,
            item_shape=table_rows.parse_item_shape(row.get("item_shape")),
            host=row.get("host") or platform.node(),
            total_steps=max(imported.steps.step, default=None),
            **_bindings(folder),
        )
    sampled = ["samples"] if program.has_gpu_samples else []  # then its own samples say no more
    tables = [name for name in cells.OF_IMPORT if name not in sampled]
    zero_at = relay.first.start.get("t_utc", started_at)
    later_s = _later_s(row.get("started_at"), zero_at, program.seconds)
    for table, rows in table_rows.run_tables(imported, run.id, tables):
        kind = table.removesuffix("s")
        if is_relayed and kind in COPIED:
            continue
        for line in rows.to_pylist():
            values = {name: value for name, value in line.items() if value is not None}
            values.pop("run_id")
            if "t_s" in values:
                values["t_s"] += later_s
            if kind == "step":
                values = {"step_time_s": math.nan, "loss": math.nan, **values}
            events.write(kind, **values)
    # read_run checks the fields that must agree; the log may name the model differently.
    notes = imported.notes + [
        f"its log says {name} {value!r}"
        for name, value in imported.columns.items()
        if name in FIELDS
        and name not in other_trainers.COMPARED
        and value not in (None, getattr(run, name))
    ]
    reason = row.get(contradictions.REASON) or contradictions.describe_excess(
        row, run.steps, program.seconds
    )
    contradicts = {contradictions.REASON: reason} if reason else {}
    events.write("imported", kind=imported.kind, numbers=metrics, notes=notes, **contradicts)


def _device_model(machine, gpus):
    """The name of the run's devices by the machine's facts; None if unknown, or if they differ.

    `gpus`: those that the program uses; none: it uses the CPU.
    """
    if not gpus:
        return machine["hardware"]["cpu"].get("model")
    kinds = machine["hardware"]["gpus"].get("kinds") or []
    return kinds[0].get("name") if len(kinds) == 1 else None


def _bindings(folder):
    """What the ranks were bound to, by start_bound.py, as fields of run_start."""
    ranks = {}
    for path in folder.glob(other_trainers.BOUND.format("*")):
        number = path.stem.rpartition("-")[2]
        with contextlib.suppress(OSError, ValueError):
            ranks[int(number)] = json.loads(path.read_text(encoding="utf-8"))
    if 0 not in ranks:
        return {}
    bindings = [
        {"host": rank["host"], "cpus": rank["cores"], **rank["binding"]}
        for _, rank in sorted(ranks.items())
        if rank["binding"]
    ]
    return {"cores": ranks[0]["cores"], **({"bindings": bindings} if bindings else {})}


def _later_s(begun, started_at, seconds):
    """Seconds from the start of a program, which ran for `seconds`, to time 0 of its log.

    0.0 if its log has no date; `begun`: the date of time 0, a datetime or None.
    """
    if not begun:
        return 0.0
    later_s = event_log.seconds_between(started_at, begun.strftime(event_log.UTC_FORMAT))
    return later_s if 0 <= later_s <= seconds else 0.0


def _tail(path):
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - LAST_BYTES))
        return file.read().decode("utf-8", "replace")


def _last_line(text):
    lines = terminal.plain(redaction.redact(text)).splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "no message")
