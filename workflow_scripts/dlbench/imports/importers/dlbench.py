"""Our own training log, train.jsonl, with the logs of other ranks or copies beside it.

The code that writes records parses it (dlbench/records/parse_run.py), so the numbers are the same:
times of steps are those of the slowest rank, losses the mean over ranks, the throughput that of all
devices. Times are exact. Logs of other ranks and of earlier attempts belong to the log that they
are named after and are no runs of their own.

Other programs write such logs with programs/logger/dlbench_log.py. Their run_start has, instead of
a run's fields, what the program states: columns of the runs table. If it states no batch,
throughput needs that of --fields. Parts of a step are metrics. If such a program trains a run of
ours, a Relay copies the events of each rank into the logs of that run: steps and times as they are;
run_start gets the fields of the run, which the program does not know. If ranks did not log the same
windows of steps, rank 0 alone counts.
"""

import dataclasses
import json
import math
import os
import re
import tempfile
from array import array
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from dlbench.imports import table_rows
from dlbench.imports.importers import Imported, Steps
from dlbench.imports.log_file import LogError, LogFile
from dlbench.log import event_fields, event_log
from dlbench.log.event_fields import Event
from dlbench.records import parse_run, run_record
from dlbench.study.runs import Run
from dlbench.tables import parquet_files, table_columns

FAMILY = "dlbench"
OTHER_RANK_OR_ATTEMPT = re.compile(r"(.+)\.(?:rank|attempt)\d+(?:\.rank\d+)?(\.[^.]+)")
BEGINNINGS = tuple(
    b'{"event": "%s"' % name for name in (b"launch", b"begin", b"run_start", b"ready", b"step")
)
LOGGED = b', "stated": {'  # in run_start, by dlbench_log.py
FROM_STEPS = (
    *("images_per_second", "step_time_mean_s", "step_time_sd_s", "step_time_median_s"),
    *("step_time_p95_s", "step_time_mad_s", "final_loss"),
)
OF_LOGGED = (
    *("steps_measured", "burn_in_steps", "window_steps", "duration_s", "resumes", *FROM_STEPS[1:]),
    *(*event_log.SCORES, "model_flops_per_item", "parameters"),
)
# Stands for what a program does not say of its run.
UNKNOWN = Run(
    model="unknown", dataset="unknown", batch_per_device=1, trainer="unknown", framework="unknown"
)
MALFORMED = (
    *(TypeError, KeyError, ValueError, AttributeError),
    *(IndexError, ArithmeticError, RecursionError),
)
COPIED = ("windows", "step", "eval", "checkpoint", "parts")
OF_START = ("log_version", "t_utc", "logger", "rank", "size", "host", "versions")
STATED = ("total_steps", "model_flops_per_item", "parameters")  # fields of run_start
MAX_NOTES = 20


def recognise(log: LogFile) -> bool:
    return log.head.startswith(BEGINNINGS)


def read(log: LogFile) -> Iterator[Imported]:
    name = OTHER_RANK_OR_ATTEMPT.fullmatch(log.path.name)
    if name and log.path.with_name(f"{name[1]}{name[2]}").is_file():
        return
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / "train.jsonl"
        for rank, path in _ranks(log.path):
            _unpack(path, event_log.rank_path(unpacked, rank))
        try:
            yield _logged(unpacked) if LOGGED in log.head else _imported(unpacked)
        except event_fields.LogError as error:
            raise LogError(str(error).replace(str(unpacked), str(log.path))) from error
        except MALFORMED as error:
            raise log.error(1, f"no training log that can be read: {error!r}"[:300]) from error


def _ranks(path):
    """(rank, path) of the logs of a run."""
    yield 0, path
    stem, _, rest = path.name.partition(".")
    pattern = re.compile(rf"{re.escape(stem)}\.rank(\d+)\.{re.escape(rest)}")
    for other in sorted(path.parent.iterdir()):
        match = pattern.fullmatch(other.name)
        if match and int(match[1]):
            yield int(match[1]), other


def _unpack(path, output):
    with open(output, "wb") as file:
        for chunk in LogFile(path).text():
            file.write(chunk)


def _imported(path):
    # These import SciPy, which is slow.
    from dlbench.analysis import run_tables
    from dlbench.imports import import_logs

    logs = [parse_run.RankLog(rank) for rank in event_log.rank_paths(path)]
    if "spec" not in logs[0].start:
        raise event_fields.LogError(f"{path}: no run_start: what was trained is unknown")
    run = Run(**logs[0].start["spec"])
    record_path = path.with_name("run.json")
    parse_run.parse(run, path, record_path)
    record = run_record.read(record_path)
    columns = import_logs.record_row(record)
    status, message = columns.pop("status"), columns.pop("message")
    for name in ("run_id", "study", "timing_source", "log_sha256", "parser_version"):
        columns.pop(name)
    for name in ("learning_gate", "notes"):
        columns.pop(name, None)
    for name in FROM_STEPS:  # None, so that they are not computed from the rows of several ranks
        columns.setdefault(name)
    for name, value in columns.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is {value}")
    parquet_files.table([columns], table_columns.RUNS)  # refuses values of other types
    samples = [
        {"rank": rank, **row}
        for rank, log in enumerate(logs)
        for sample in log.samples
        for row in run_tables.sample_rows(sample)
    ]
    run = _run(path, logs, columns, samples, status=status, message=message)
    parquet_files.table(run.evals, table_columns.EVALS)
    parquet_files.table(samples, table_columns.SAMPLES)
    run.metrics = record["summary"].get("metrics", [])
    return run


def _logged(path):
    """The run in a log of dlbench_log.py."""
    log = path.with_name("run") / "train.jsonl"
    events = event_log.EventLog(log)
    relay = Relay(UNKNOWN, path, log, events)
    relay.copy()
    first = relay.first
    if relay.trouble or not first.start:
        raise event_fields.LogError(relay.trouble or f"{path}: no run_start")
    end = first.end or {
        "status": "failed",
        "message": f"its log ends after step {first.last_step}, without run_end: was it killed?",
        "t_utc": first.start["t_utc"],
    }
    ended = {name: end.get(name) for name in ("status", "message", "t_utc", "t_s")}
    relay.finish(None, **ended)
    events.write("begin", t_utc=first.began)
    events.write("imported", kind=FAMILY, notes=[], numbers={})
    events.write("run_end", **ended)
    events.close()
    logs = parse_run.rank_logs(log)
    record = parse_run.content(UNKNOWN, logs)
    summary, notes = record["summary"], relay.notes
    columns = {name: summary[name] for name in OF_LOGGED if summary.get(name) is not None}
    columns |= {name: None for name in FROM_STEPS if name not in columns}
    columns["host"] = first.start.get("host")
    columns["started_at"] = datetime.fromisoformat(first.start["t_utc"])
    if first.end:
        columns["ended_at"] = datetime.fromisoformat(first.end["t_utc"])
    for name, value in (first.start.get("stated") or {}).items():
        if name in table_columns.IMPORTABLE:
            columns |= table_rows.parse_fields({name: value})
        elif name not in STATED:
            notes.append(f"it states {name} {value!r}, which is no column: left out")
    versions = first.start.get("versions") or {}
    columns.setdefault("framework_version", versions.get(columns.get("framework")))

    def complete(known):
        mean_s = summary.get("step_time_mean_s")
        if mean_s and known.get("global_batch"):
            known["images_per_second"] = known["global_batch"] / mean_s

    run = _run(path, logs, columns, status=record["status"], message=record["message"])
    run.metrics, run.notes, run.complete = relay.metrics(), notes, complete
    return run


def _run(path, logs, columns, samples=(), **status):
    evals = [{k: v for k, v in event.items() if k != "event"} for event in logs[0].evals]
    with open(path, "rb") as file:
        lines = sum(1 for _ in file)
    return Imported(columns, _steps(logs), evals, list(samples), lines=(1, lines), **status)


def _steps(logs):
    from dlbench.analysis import run_tables

    rows = [
        (rank, row)
        for rank, log in enumerate(logs)
        for event in log.steps
        for row in run_tables.step_rows(event)
    ]

    def column(typecode, name):
        return array(typecode, (row.get(name, math.nan) for _, row in rows))

    return Steps(
        step=column("q", "step"),
        step_time_s=column("d", "step_time_s"),
        loss=column("d", "loss"),
        window_steps=array("q", (row.get("window_steps", "t_s" in row) for _, row in rows)),
        warm_up=column("b", "warm_up"),
        more={
            "rank": array("i", (rank for rank, _ in rows)),
            "epoch": column("d", "epoch"),
            "t_s": column("d", "t_s"),
            "learning_rate": column("d", "learning_rate"),
        },
    )


class Relay:
    """Copies the events of all ranks into the logs of a run, also while they are written.

    Attributes:
        first: the log of rank 0.
        trouble: why a log cannot be used; "" if nothing is wrong.
        notes: what the program's logger remarked, and how ranks differ.
    """

    def __init__(
        self,
        run: Run,
        source: Path,
        log: Path,
        events: event_log.EventLog,
        device_model: str | None = None,
        further: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """
        Args:
            source: the program's log of rank 0; those of other ranks lie beside it.
            log: path of the run's log, `events`; those of other ranks are put beside it.
            device_model: of the run, unless the program states it.
            further: returns fields of rank 0's run_start, when that comes.
        """
        self._further = further
        self._run, self._source, self._log = run, source, log
        self._device_model = device_model
        self.first = RankLog(source, 0, events)
        self._ranks = {0: self.first}
        self._metrics: dict[str, dict[str, Any]] = {}
        self._parts_s: dict[str, float] = {}
        self.trouble = ""
        self.notes: list[str] = []

    def copy(self) -> None:
        """Copy what the logs have got since the last call."""
        if self.trouble or not os.path.exists(self._source):  # most programs have no such log
            return
        of_ranks = self._run.copies_per_node == 1  # each copy is one process, with its own Relay
        for path in event_log.rank_paths(self._source) if of_ranks else [self._source]:
            number = event_log.rank_of(path)
            rank = self._ranks.setdefault(number, RankLog(path, number))
            try:
                for event in rank.new_events():
                    self._take(rank, event)
            except event_fields.LogError as error:
                self.trouble = f"{path}: {error}"

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics that rank 0 logged, and its parts of a step: seconds, mean over the steps."""
        steps = self.first.measured_steps
        of_parts = {
            f"{name}_s": {"value": spent_s / steps, "unit": "s", "better": "lower"}
            for name, spent_s in self._parts_s.items()
        }
        return [{"name": name, **values} for name, values in (of_parts | self._metrics).items()]

    def finish(self, containment: Event | None, **end: Any) -> None:
        """End the logs of other ranks than 0, with the image's marker and fields of run_end."""
        first, others = self.first, [self._ranks[n] for n in sorted(self._ranks) if n]
        unlike = [rank for rank in others if rank.windows != first.windows]
        for rank in others:
            if rank.events and not unlike:
                rank.events.write("begin", t_utc=rank.began, containment=containment)
                rank.events.write("imported", kind=FAMILY, notes=[], numbers={})
                rank.events.write("run_end", **end)
            elif rank.events:
                event_log.rank_path(self._log, rank.number).unlink()
            if rank.events:
                rank.events.close()
        if unlike:
            self.notes.append(
                f"rank {unlike[0].number} logged {len(unlike[0].windows)} windows up to step "
                f"{unlike[0].last_step}, rank 0 {len(first.windows)} up to step {first.last_step}, "
                "so rank 0 alone counts: let all ranks call step, evaluation and checkpoint alike"
            )
        size = first.start.get("size") or 1
        if first.start and len(self._ranks) < size:
            self.notes.append(
                f"{len(self._ranks)} of {size} ranks logged: a slower one would not be seen"
            )

    def _take(self, rank, event):
        kind = event["event"]
        values = {name: value for name, value in event.items() if name != "event"}
        if kind == "begin":
            rank.began = event["t_utc"]
        elif kind == "stage":
            rank.stages.append(values)
        elif kind == "run_start" and "logger" in event:
            rank.start = event
            self._start(rank)
        elif not rank.start:
            raise event_fields.LogError(
                f"{kind}: expected the run_start of dlbench_log.py before it"
            )
        elif kind in COPIED:
            rank.events.write(kind, **values)
            if kind == "parts" and rank.number == 0 and rank.is_measured:
                for name, spent_s in event["seconds"].items():
                    self._parts_s[name] = self._parts_s.get(name, 0.0) + spent_s
        elif kind == "metric" and rank.number == 0:
            self._metrics[values.pop("name")] = values
        elif kind == "remark" and len(self.notes) < MAX_NOTES:
            self.notes.append(f"rank {rank.number}: {event.get('message')}")
        elif kind == "run_end":
            rank.end = event

    def _start(self, rank):
        """Write the run_start of a rank.

        A event_fields.LogError if the program states something of the wrong type.
        """
        stated = rank.start.get("stated") or {}
        shape = stated.get("item_shape") or self._run.sequence_length
        values = {
            "spec": dataclasses.asdict(self._run),
            **{name: rank.start.get(name) for name in OF_START},
            **{name: stated.get(name) for name in STATED},
            "device_model": stated.get("device_model") or self._device_model,
            "item_shape": table_rows.parse_item_shape(str(shape) if shape else None),
            **(self._further() if rank.number == 0 else {}),
        }
        event_fields.parse_event(json.dumps({"event": "run_start", **values}).encode())
        if rank.events is None:
            rank.events = event_log.EventLog(event_log.rank_path(self._log, rank.number))
        for stage in rank.stages:
            rank.events.write("stage", **stage)
        rank.events.write("run_start", **values)


class RankLog:
    """The log that a rank writes, and the log of the run into which it is copied.

    Attributes:
        began: when it imported its logger, as a date; None if it has none.
        start, end: its run_start and its run_end; {} without one.
    """

    def __init__(self, path: Path, number: int, events: event_log.EventLog | None = None) -> None:
        self.path, self.number, self.events = path, number, events
        self.began: str | None = None
        self.stages: list[Event] = []
        self.start: Event = {}
        self.end: Event = {}
        self.windows = array("q")  # the last step of each
        self.measured_steps, self.is_measured = 0, False
        self._offset = 0
        self._inode: int | None = None

    @property
    def last_step(self) -> int:
        """0 before the first."""
        return self.windows[-1] if self.windows else 0

    def new_events(self) -> Iterator[Event]:
        """Yield the events of complete lines that were not read before.

        A event_fields.LogError if the file is another one than before, or no log.
        """
        try:
            file = open(self.path, "rb")  # noqa: SIM115
        except FileNotFoundError:
            return
        with file:
            inode = os.fstat(file.fileno()).st_ino
            if self._inode not in (None, inode):
                raise event_fields.LogError(
                    "the program began this log anew: was it started again? The steps before are "
                    "in a file beside it, attempt1"
                )
            self._inode = inode
            file.seek(self._offset)
            for line in iter(lambda: file.readline(event_log.MAX_LINE_BYTES), b""):
                if not line.endswith(b"\n"):
                    return  # it is being written
                self._offset += len(line)
                event = event_fields.parse_event(line)
                if event["event"] == "step":
                    self._check(event)
                yield event

    def _check(self, event):
        steps = event.get("window_steps", 1)
        if event["step"] != self.last_step + steps or event.get("t_s") is None:
            raise event_fields.LogError(
                f"step: expected step {self.last_step + steps} with its t_s, found "
                f"{event['step']}: did two processes write this log?"
            )
        self.windows.append(event["step"])
        self.is_measured = not event["warm_up"]
        self.measured_steps += steps if self.is_measured else 0
