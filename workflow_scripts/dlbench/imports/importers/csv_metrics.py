"""CSV files of metrics: Keras' CSVLogger and Lightning's, as `metrics.csv`, also litGPT's.

- Keras has one row an epoch. `loss` and the metrics beside it are means over the batches of the
  epoch while the weights changed; the last loss becomes final_loss, which in other logs is that of
  the last step. `val_*` are of held-out items, after the epoch: a row of evals. top_k accuracies
  count as top-5, Keras' default. The separator is the user's, `NA` a value that an epoch lacks. If
  the epoch goes back to 0, the next run begins; to another one, training was resumed there, and the
  epochs that follow replace the earlier ones of the same number.
- Lightning has one row for each time that something was logged, with `step` (optimizer steps); what
  a row does not have is empty. Names are the user's. As loss of training count train_loss,
  train/loss or loss, also with `_step`; with `_epoch` (a mean over the epoch) if there is no
  other. val_loss, val_acc, val_accuracy and the like, also with valid, validation and a slash,
  become a row of evals. A row whose step is before that of an earlier row of training begins the
  next run.
- `step` and `epoch` count from 0; both are from 1 in our tables. The notes name other columns.
- There are no times, unless Lightning's callback ThroughputMonitor wrote `train/time` (seconds of
  training since it began, without evaluations) and `train/batches` (batches of one process).
  Their differences are windows; the first row is the warm-up. Batches per optimizer step
  (accumulation) are taken as in the file: batches over steps. `train/samples` over
  `train/batches` is the batch of a process: batch_per_device. The devices are not in the file.
- Fabric's ThroughputMonitor has these names without `train/`, and no row's `step` counts but
  batches, as litGPT writes it. With gradients accumulated, batch_per_device is that of a batch.
  Evaluations are in litGPT's `time`, as they are not in the callback's.

Source: keras/src/callbacks/csv_logger.py, Keras 2 and 3; Lightning-AI/pytorch-lightning,
fabric/loggers/csv_logs.py, fabric/utilities/throughput.py, pytorch/callbacks/throughput_monitor.py
of 2026; Lightning-AI/litgpt 0.5.13, pretrain.py. Public files have the columns in any order.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dlbench.imports import log_lines
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_lines import CUT_SHORT, MAX_TIME_S, LeftOut, count, csv_cells, real

VARIANTS = {
    "keras_csvlogger": {"FAMILY": "keras", "ABOUT": "The CSV of Keras' CSVLogger, a row an epoch"},
    "lightning_csv": {"FAMILY": "lightning_csv", "ABOUT": "Lightning's and litGPT's metrics.csv"},
}
SEPARATORS = ",;\t"
ACCURACIES = (
    *("accuracy", "acc", "binary_accuracy"),
    *("categorical_accuracy", "sparse_categorical_accuracy"),
)
TOP5 = ("top_k_categorical_accuracy", "sparse_top_k_categorical_accuracy", "top_5_accuracy", "top5")
KERAS = {"loss": "loss", **dict.fromkeys(ACCURACIES, "top1"), **dict.fromkeys(TOP5, "top5")}
LOSS = re.compile(r"(?:train(?:ing)?[_/])?loss(_step|_epoch)?")
HELD_OUT = re.compile(r"val(?:id|idation)?[_/](?:(loss)|(acc|accuracy|acc1|top1))(?:_epoch)?")
TIME, BATCHES, SAMPLES = "train/time", "train/batches", "train/samples"
OF_FABRIC = {"time": TIME, "batches": BATCHES, "samples": SAMPLES}


def recognise(log: LogFile, constants: Mapping[str, Any]) -> bool:
    header, newline, _ = log.head_text.partition("\n")
    return bool(newline) and _header(header)[0] == constants["NAME"]


def _header(line):
    """(kind of log, separator, columns) of a header; ("", "", []) if the line is none."""
    for separator in SEPARATORS:
        names = csv_cells(line, separator)
        if "step" not in names:
            if names[:1] == ["epoch"] and {name.removeprefix("val_") for name in names} & {*KERAS}:
                return "keras_csvlogger", separator, names
        elif "epoch" in names:
            if TIME not in names and OF_FABRIC.keys() <= {*names}:
                names = [OF_FABRIC.get(name, name) for name in names]
            if TIME in names or any(LOSS.fullmatch(n) or HELD_OUT.fullmatch(n) for n in names):
                return "lightning_csv", separator, names
    return "", "", []


def read(log: LogFile, constants: Mapping[str, Any]) -> Iterator[Imported]:
    lines, name = log.lines(), constants["NAME"]
    _, header = next(lines, (1, ""))
    found, separator, names = _header(header)
    kind: type[Any] = {"keras_csvlogger": _Keras, "lightning_csv": _Lightning}[name]
    if found != name:
        there = f"one of {found}" if found else "none"
        raise log.error(1, f"expected a header with {kind.COUNTS} and a loss, found {there}")
    run, last = kind(names, 1), 1
    for last, line in lines:
        cells = csv_cells(line, separator)
        if last == log.unfinished:
            run.left_out.add(last, CUT_SHORT)
        elif line.rstrip("\r") == header.rstrip("\r"):
            run.left_out.add(last, "the header again")
        elif line.strip():
            row = dict(zip(names, cells, strict=False))
            at = count(row.get(kind.COUNTS), 0)
            if len(cells) != len(names) or (at is None and kind is _Keras):
                raise log.error(
                    last, f"expected {len(names)} values, found {log_lines.printable(line)}"
                )
            if at is None:
                run.left_out.add(last, "a row without a step")
                continue
            if run.begins_again(at, row):
                yield run.imported(log, last - 1)
                run = kind(names, last)
            run.add(last, at, row)
    yield run.imported(log, last)


class _Keras:
    """The epochs of one run."""

    COUNTS = "epoch"

    def __init__(self, names, first_line):
        self.names, self.first_line = names, first_line
        self.rows = {}  # by epoch, in ascending order
        self.resumes, self.left_out = [], LeftOut()

    def begins_again(self, epoch, row):
        return epoch == 0 and bool(self.rows)

    def add(self, line, epoch, row):
        replaced = 0
        while self.rows and epoch <= next(reversed(self.rows)):
            self.rows.popitem()
            replaced += 1
        if replaced:
            self.resumes.append(f"line {line}: resumed, {replaced} epochs before it do not count")
        self.rows[epoch] = row

    def imported(self, log, last_line):
        if not self.rows:
            raise log.error(last_line, "no epoch could be read")
        columns = {"framework": "keras", "mode": "train", "epochs": len(self.rows)}
        if self.resumes:
            columns["resumes"] = len(self.resumes)
        last = self.rows[next(reversed(self.rows))]
        if (final := log_lines.loss(last.get("loss"))) is not None:
            columns["final_loss"] = final
        evals = []
        for epoch, row in self.rows.items():
            held_out = {}
            for name, column in KERAS.items():
                if (value := _score(column, row.get(f"val_{name}"))) is not None:
                    held_out.setdefault(column, value)
            if held_out:
                evals.append({"split": "validation", "epoch": epoch + 1, **held_out})
        unknown = [name for name in self.names[1:] if name.removeprefix("val_") not in KERAS]
        notes = ["final_loss is the mean over the last epoch; the file has no times"]
        notes += _left_out(unknown) + self.resumes[: log_lines.MAX_NAMES] + self.left_out.notes()
        return Imported(columns, evals=evals, notes=notes, lines=(self.first_line, last_line))


class _Lightning:
    """The rows of one run."""

    COUNTS = "step"

    def __init__(self, names, first_line):
        self.names, self.first_line = names, first_line
        losses = [(LOSS.fullmatch(name), name) for name in names]
        candidates = sorted((m[1] == "_epoch", name) for m, name in losses if m)
        self.loss = candidates[0][1] if candidates else None
        self.rows = {}  # loss, time and batches by step
        self.evals, self.epoch, self.samples = {}, 0, None
        self.left_out = LeftOut()

    def begins_again(self, step, row):
        return bool(self.rows) and step < max(self.rows) and bool(row.get(self.loss))

    def add(self, line, step, row):
        values = {
            "loss": log_lines.loss(row[self.loss]) if self.loss and row[self.loss] else None,
            "time_s": real(row.get(TIME), 0, MAX_TIME_S),
            "batches": count(row.get(BATCHES)),
        }
        values = {name: value for name, value in values.items() if value is not None}
        if values:
            self.rows.setdefault(step, {}).update(values)
        samples = count(row.get(SAMPLES), high=2**53)
        if samples and "batches" in values:
            self.samples = (samples, values["batches"])
        epoch = count(row["epoch"], 0)
        self.epoch = max(self.epoch, 0 if epoch is None else epoch + 1)
        held_out = {}
        for name, text in row.items():
            if text and (match := HELD_OUT.fullmatch(name)):
                column = "loss" if match[1] else "top1"
                if (value := _score(column, text)) is not None:
                    held_out[column] = value
        if held_out:
            known = {"split": "validation", "step": step + 1}
            if epoch is not None:
                known["epoch"] = epoch + 1
            self.evals.setdefault(step, known).update(held_out)

    def imported(self, log, last_line):
        if not self.rows and not self.evals:
            raise log.error(last_line, "no loss, no score and no time in its rows")
        columns = {"framework": "pytorch", "mode": "train"}
        if self.epoch:
            columns["epochs"] = self.epoch
        if self.samples and self.samples[0] % self.samples[1] == 0:
            columns["batch_per_device"] = self.samples[0] // self.samples[1]
        run = Imported(columns, evals=list(self.evals.values()), lines=(self.first_line, last_line))
        before = None
        for step, row in sorted(self.rows.items()):
            time_s, batches = row.get("time_s"), row.get("batches")
            window, step_time_s, warm_up = 0, math.nan, False
            if time_s is not None and batches is not None:
                if before and batches > before[1] and time_s > before[0]:
                    window = step - before[2]
                    step_time_s = (time_s - before[0]) / window
                elif before is None:
                    window, step_time_s, warm_up = step + 1, time_s / (step + 1), True
                before = (time_s, batches, step)
            run.steps.add(step + 1, step_time_s, row.get("loss"), window, warm_up)
        known = {"epoch", "step", self.loss, TIME, BATCHES, SAMPLES}
        if before is None:
            run.notes.append("the file has no times")
        unknown = [n for n in self.names if n not in known and not HELD_OUT.fullmatch(n)]
        run.notes += _left_out(unknown)
        run.notes += self.left_out.notes()
        return run


def _score(column, text):
    return log_lines.loss(text) if column == "loss" else real(text, 0, 1)


def _left_out(names):
    return [f"columns left out: {log_lines.list_names(names)}"] if names else []
