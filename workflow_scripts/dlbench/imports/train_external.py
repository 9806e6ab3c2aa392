"""Train a run with another program: start it, keep its output, parse its log, write our event log.

Such an event log has these events in addition to those of dlbench/log/event_log.py:
    machine     facts of the machine, gathered before the program starts
    output      t_s, bytes: size of its files whenever they have grown, as a sign of life
    parts       step, seconds: of parts of a step or window, by dlbench_log.py
    imported    kind, notes; numbers: columns of the runs table; contradicts: how they differ
"""

import contextlib
import dataclasses
import json
import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import files, terminal
from dlbench.imports import import_logs, kinds, logged_events, table_rows, watched_program
from dlbench.imports.watched_program import Watching
from dlbench.log import event_log
from dlbench.machine import facts, redaction
from dlbench.study import contradictions, other_trainers
from dlbench.study.runs import FIELDS, Run
from dlbench.tables import table_names
from dlbench.trainer import engine

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
    watching: Watching = watched_program.NO_SAMPLES,
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
    events.write("machine", **machine)
    device_model = _device_model(machine, watching.gpus)
    logged = folder / other_trainers.LOGGED
    relay = logged_events.Relay(run, logged, log, events, device_model, lambda: _bindings(folder))
    variables = other_trainers.log_variables(run, folder)
    started_at = events.begin()
    program = watched_program.run(command, folder, events, watching, variables, relay)
    ended_at, seconds = event_log.utc_now(), program.seconds
    if relay.start:  # by the clock of the program's log
        between = event_log.seconds_between
        seconds = relay.end.get("t_s") or max(0.0, between(relay.start["t_utc"], ended_at))
    marker = _marker(folder) if image_id else None
    events.write("begin", t_utc=relay.began or started_at, containment=marker)

    def finish(status, message):
        ended = {"status": status, "message": message, "t_utc": ended_at, "t_s": round(seconds, 6)}
        relay.finish(marker, **ended)
        events.write("run_end", **ended, **program.use)

    if image_id and (marker or {}).get("image_id") != image_id:
        actual = (marker or {}).get("image_id", "no image")
        finish("failed", f"expected the image {image_id}, was in {actual}")
        return
    tail = _tail(folder / other_trainers.PRINTED)
    if program.too_much:
        finish("failed", program.too_much)
        return
    if program.exit_code:
        if any(text in tail for text in OUT_OF_MEMORY):
            finish("oom", _last_line(tail))
            return
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
    ended = relay.end or {"status": imported.status, "message": imported.message}
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

    Raises:
        Error: they have no run, several, or one that contradicts what was to be trained.
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
    """Write the run in the program's logs as events.

    Args:
        imported: the MergedRun (dlbench/imports/merging.py) of the logs.
        program: a watched_program.Ended.
        folder: of its logs.
        device_model: of the run, unless its log has it.
        relay: a logged_events.Relay, which may have written run_start, steps and evaluations.
    """
    row = table_rows.run_row(imported, run.id, None, None)
    metrics = {
        name: value
        for name, value in row.items()
        if _is_number(value) and name not in (*FIELDS, "devices", "global_batch")
    }
    is_relayed = bool(relay.start)
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
    tables = [name for name in table_names.OF_IMPORT if name not in sampled]
    zero_at = relay.start.get("t_utc", started_at)
    later_s = _later_s(row.get("started_at"), zero_at, program.seconds)
    for table, rows in table_rows.run_tables(imported, run.id, tables):
        kind = table.removesuffix("s")
        if is_relayed and kind in logged_events.COPIED:
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
    notes = [
        *imported.notes,
        *(
            f"its log says {name} {value!r}"
            for name, value in imported.columns.items()
            if name in FIELDS
            and name not in other_trainers.COMPARED
            and value not in (None, getattr(run, name))
        ),
    ]
    reason = row.get(contradictions.REASON) or contradictions.describe_excess(
        row, run.steps, program.seconds
    )
    contradicts = {contradictions.REASON: reason} if reason else {}
    events.write("imported", kind=imported.kind, numbers=metrics, notes=notes, **contradicts)


def _device_model(machine, gpus):
    """The name of the run's devices by the machine's facts; None if unknown, or if they differ.

    Args:
        gpus: those that the program uses; none: it uses the CPU.
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
    """Seconds from the start of the program to time 0 of its log; 0.0 if its log has no date.

    Args:
        begun: the date of time 0, a datetime or None.
        started_at: the date at which the program was started, which ran for `seconds`.
    """
    if not begun:
        return 0.0
    later_s = event_log.seconds_between(started_at, begun.strftime(event_log.UTC_FORMAT))
    return later_s if 0 <= later_s <= seconds else 0.0


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _marker(folder):
    """The marker of the image in which the program ran; None if it ran in none."""
    try:
        return json.loads((folder / other_trainers.PROOF).read_text())
    except (OSError, ValueError):
        return None


def _tail(path):
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - LAST_BYTES))
        return file.read().decode("utf-8", "replace")


def _last_line(text):
    lines = terminal.plain(redaction.redact(text)).splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "no message")
