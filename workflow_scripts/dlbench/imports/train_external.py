"""Train a run with another program: start it, keep its output, parse its log, write our event log.

Such an event log has these events in addition to those of dlbench/log/event_log.py:
    machine     facts of the machine, gathered before the program starts
    output      t_s, bytes: size of the program's output, every few seconds, as a sign of life
    parts       step, seconds: of parts of a step or window, by dlbench_log.py
    imported    kind, notes; numbers: columns of the runs table; contradicts: how they differ
"""

import dataclasses
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import terminal
from dlbench.imports import import_logs, kinds, logged_events, table_rows
from dlbench.log import event_log
from dlbench.machine import facts, redaction
from dlbench.study import contradictions, other_trainers
from dlbench.study.runs import FIELDS, Run
from dlbench.trainer import engine

POLL_S, RELAY_EVERY_S, OUTPUT_EVERY_S = 0.2, 1.0, 5.0
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
    gpus: Sequence[str] = (),
) -> None:
    """Train a run with a command.

    Args:
        kind: name of the importer for the program's log, or auto; or the patterns by which what it
            prints is read.
        log: path of the event log. The program's log is in other_trainers.FOLDER beside it.
        image_id: id of the image in which the program must run; None on bare metal.
        gpus: selectors of the GPUs of this node that the program uses.

    Raises:
        Error: the program failed, for a reason that may be transient.
    """
    folder = log.parent / other_trainers.FOLDER
    _make_empty(folder)
    events = event_log.EventLog(log)
    machine = facts.gather(gpus, variables=engine.variables())
    if image_id:
        # This process runs outside the image and shares only the kernel with the program.
        machine["software"] |= {"os": None, "glibc": None}
        machine["unknown"] |= dict.fromkeys(("software.os", "software.glibc"), "those of the image")
    events.write("machine", **machine)
    logged = folder / other_trainers.LOGGED
    relay = logged_events.Relay(run, logged, log, events, _device_model(machine))
    variables = other_trainers.log_variables(run, folder)
    started_s, started_at = time.perf_counter(), event_log.utc_now()
    printed = folder / other_trainers.PRINTED
    exit_code = _run(command, printed, events, started_s, relay, variables)
    seconds = round(time.perf_counter() - started_s, 6)
    end = {"t_utc": event_log.utc_now(), "t_s": seconds}
    if relay.start:  # with the clock of the program's log
        end["t_s"] = relay.end.get("t_s")
    marker = _marker(folder) if image_id else None
    events.write("begin", t_utc=relay.began or started_at, containment=marker)

    def finish(status, message):
        ended = {"status": status, "message": message, **end}
        relay.finish(marker, **ended)
        events.write("run_end", **ended)

    if image_id and (marker or {}).get("image_id") != image_id:
        actual = (marker or {}).get("image_id", "no image")
        finish("failed", f"expected the image {image_id}, was in {actual}")
        return
    tail = _tail(printed)
    if exit_code:
        if any(text in tail for text in OUT_OF_MEMORY):
            finish("oom", _last_line(tail))
            return
        sys.stderr.write(terminal.plain(tail))
        raise Error(f"{command[0]} ended with exit code {exit_code}: {_last_line(tail)}")
    try:
        if relay.trouble:
            raise Error(relay.trouble)
        imported = _read(run, folder, kind)
    except Error as error:
        finish("failed", redaction.redact(f"its log: {error}"))
        return
    _write_run(run, imported, events, started_at, seconds, is_relayed=bool(relay.start))
    ended = relay.end or {"status": imported.status, "message": imported.message}
    finish(ended["status"], redaction.redact(ended["message"]))


def _read(run, folder, kind):
    """The MergedRun of the logs in a folder.

    Raises:
        Error: they have no run, several, or one that contradicts what was to be trained.
    """
    stated = {name: getattr(run, name) for name in other_trainers.COMPARED}
    if isinstance(kind, str):
        return import_logs.read_run(folder, kind, stated)
    if run.sequence_length:
        stated["item_shape"] = str(run.sequence_length)
    processes = run.nodes * engine.strategy_of(run).processes_per_node(run)
    patterns = kinds.of_config(kind, processes)
    return import_logs.read_run(folder, patterns, stated, other_trainers.PRINTED)


def _device_model(machine):
    """The name of the devices by the machine's facts: of its GPUs, else of its CPU."""
    kinds = machine["hardware"]["gpus"]["kinds"]
    return kinds[0].get("name") if kinds else machine["hardware"]["cpu"].get("model")


def _run(command, printed, events, started_s, relay, variables):
    """Run a command to its end, and copy what it logs. Returns its exit code."""
    with open(printed, "ab") as output:
        program = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | variables
        )
        size, written_s, relayed_s = 0, started_s, started_s
        while program.poll() is None:
            time.sleep(POLL_S)
            now = time.perf_counter()
            if now - relayed_s > RELAY_EVERY_S:
                relayed_s = now
                relay.copy()
            written = os.fstat(output.fileno()).st_size
            if now - written_s > OUTPUT_EVERY_S and written > size:
                size, written_s = written, now
                events.write("output", t_s=round(now - started_s, 3), bytes=size)
    relay.copy()
    return program.returncode


def _write_run(run, imported, events, started_at, seconds, is_relayed):
    """Write the run in the program's logs as events.

    Args:
        imported: the MergedRun (dlbench/imports/merging.py) of the logs.
        seconds: that the whole program took, by our clock.
        is_relayed: whether run_start, steps and evaluations are written.
    """
    row = table_rows.run_row(imported, run.id, None, None)
    metrics = {
        name: value
        for name, value in row.items()
        if _is_number(value) and name not in (*FIELDS, "devices", "global_batch")
    }
    if not is_relayed:
        events.write(
            "run_start",
            log_version=event_log.LOG_VERSION,
            t_utc=started_at,
            spec=dataclasses.asdict(run),
            versions={run.framework: row.get("framework_version")},
            device_model=row.get("device_model"),
            item_shape=table_rows.parse_item_shape(row.get("item_shape")),
            host=row.get("host") or platform.node(),
            total_steps=max(imported.steps.step, default=None),
        )
    for table, rows in table_rows.run_tables(imported, run.id):
        kind = table.removesuffix("s")
        if is_relayed and kind in logged_events.COPIED:
            continue
        for line in rows.to_pylist():
            values = {name: value for name, value in line.items() if value is not None}
            values.pop("run_id")
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
            and value != getattr(run, name)
        ),
    ]
    reason = row.get(contradictions.REASON) or contradictions.describe_excess(
        row, run.steps, seconds
    )
    contradicts = {contradictions.REASON: reason} if reason else {}
    events.write("imported", kind=imported.kind, numbers=metrics, notes=notes, **contradicts)


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _make_empty(folder):
    """Create a folder, or remove the logs of an earlier attempt from it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


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
