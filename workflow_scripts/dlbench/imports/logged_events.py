"""Logs that programs write with programs/logger/dlbench_log.py: their events become those of a run.

Each rank has a log of its own, and so has the run. Steps and times are copied as they are;
run_start gets the fields of the run, which the program does not know. If ranks did not log the same
windows of steps, rank 0 alone counts.
"""

import dataclasses
import json
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dlbench.imports.table_rows import parse_item_shape
from dlbench.log import event_fields, event_log
from dlbench.log.event_fields import Event, LogError
from dlbench.study.runs import Run

KIND = "dlbench"  # the importer of such logs
COPIED = ("windows", "step", "eval", "checkpoint", "parts")
OF_START = ("log_version", "t_utc", "logger", "rank", "size", "host", "versions")
STATED = ("total_steps", "model_flops_per_item", "parameters")  # fields of run_start
MAX_NOTES = 20


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
            except LogError as error:
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
        """End the logs of ranks other than 0.

        Args:
            containment: the marker of the image.
            end: fields of run_end.
        """
        first, others = self.first, [self._ranks[n] for n in sorted(self._ranks) if n]
        unlike = [rank for rank in others if rank.windows != first.windows]
        for rank in others:
            if rank.events and not unlike:
                rank.events.write("begin", t_utc=rank.began, containment=containment)
                rank.events.write("imported", kind=KIND, notes=[], numbers={})
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
            raise LogError(f"{kind}: expected the run_start of dlbench_log.py before it")
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

        A LogError if the program states something of the wrong type.
        """
        stated = rank.start.get("stated") or {}
        shape = stated.get("item_shape") or self._run.sequence_length
        values = {
            "spec": dataclasses.asdict(self._run),
            **{name: rank.start.get(name) for name in OF_START},
            **{name: stated.get(name) for name in STATED},
            "device_model": stated.get("device_model") or self._device_model,
            "item_shape": parse_item_shape(str(shape) if shape else None),
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

        A LogError if the file is another one than before, or no log.
        """
        try:
            file = open(self.path, "rb")  # noqa: SIM115
        except FileNotFoundError:
            return
        with file:
            inode = os.fstat(file.fileno()).st_ino
            if self._inode not in (None, inode):
                raise LogError(
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
            raise LogError(
                f"step: expected step {self.last_step + steps} with its t_s, found "
                f"{event['step']}: did two processes write this log?"
            )
        self.windows.append(event["step"])
        self.is_measured = not event["warm_up"]
        self.measured_steps += steps if self.is_measured else 0
