"""`metrics.csv` of Lightning's CSVLogger: one row for each time that something was logged.

- `step` counts optimizer steps from 0 and `epoch` from 0; both are from 1 in our tables. What a
  row does not have is empty; values of training and of validation are in rows of their own.
- Names are the user's. As loss of training count train_loss, train/loss or loss, also with
  `_step`; with `_epoch` (a mean over the epoch) if there is no other. val_loss, val_acc,
  val_accuracy and the like, also with valid, validation and a slash, become a row of evals. The
  notes name the rest.
- There are no times, unless the callback ThroughputMonitor wrote `train/time` (seconds of
  training since it began, without evaluations) and `train/batches` (batches of one process).
  Their differences are windows; the first row is the warm-up. Batches per optimizer step
  (accumulation) are taken as in the file: batches over steps. `train/samples` over
  `train/batches` is the batch of a process: batch_per_device. The devices are not in the file.
- Fabric's ThroughputMonitor has these names without `train/`, and no row's `step` counts but
  batches, as litGPT writes it. With gradients accumulated, batch_per_device is that of a batch.
  Evaluations are in litGPT's `time`, as they are not in the callback's.
- A row whose step is before that of an earlier row of training begins the next run.

Source: Lightning-AI/pytorch-lightning, fabric/loggers/csv_logs.py, fabric/utilities/
throughput.py, pytorch/callbacks/throughput_monitor.py of 2026; Lightning-AI/litgpt 0.5.13,
pretrain.py. Public files have the columns in any order.
"""

import math
import re
from collections.abc import Iterator

from dlbench.imports import log_values
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import CUT_SHORT, MAX_TIME_S, LeftOut, count, csv_cells, real

FAMILY = "lightning_csv"
LOSS = re.compile(r"(?:train(?:ing)?[_/])?loss(_step|_epoch)?")
HELD_OUT = re.compile(r"val(?:id|idation)?[_/](?:(loss)|(acc|accuracy|acc1|top1))(?:_epoch)?")
TIME, BATCHES, SAMPLES = "train/time", "train/batches", "train/samples"
OF_FABRIC = {"time": TIME, "batches": BATCHES, "samples": SAMPLES}


def recognise(log: LogFile) -> bool:
    header, newline, _ = log.head_text.partition("\n")
    return bool(newline) and _is_header(_names(header))


def _names(header):
    """The names of the columns, those of Fabric's ThroughputMonitor as the callback has them."""
    names = csv_cells(header)
    if TIME in names or not OF_FABRIC.keys() <= set(names):
        return names
    return [OF_FABRIC.get(name, name) for name in names]


def _is_header(names):
    if "step" not in names or "epoch" not in names:
        return False
    return TIME in names or any(LOSS.fullmatch(n) or HELD_OUT.fullmatch(n) for n in names)


def read(log: LogFile) -> Iterator[Imported]:
    lines = log.lines()
    _, header = next(lines, (1, ""))
    names = _names(header)
    if not _is_header(names):
        raise log.error(1, "expected a header with epoch, step and a loss, found none")
    run, last = _Run(names, 1), 1
    for last, line in lines:
        cells = csv_cells(line)
        if last == log.unfinished:
            run.left_out.add(last, CUT_SHORT)
        elif not line.strip():
            continue
        elif len(cells) != len(names):
            raise log.error(
                last, f"expected {len(names)} values, found {log_values.printable(line)}"
            )
        else:
            row = dict(zip(names, cells, strict=True))
            step = count(row["step"], 0)
            if step is None:
                run.left_out.add(last, "a row without a step")
            elif run.begins_again(step, row):
                yield run.imported(log, last - 1)
                run = _Run(names, last)
                run.add(step, row)
            else:
                run.add(step, row)
    yield run.imported(log, last)


class _Run:
    """The rows of one run."""

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

    def add(self, step, row):
        values = {
            "loss": log_values.loss(row[self.loss]) if self.loss and row[self.loss] else None,
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
                value = log_values.loss(text) if match[1] else real(text, 0, 1)
                if value is not None:
                    held_out["loss" if match[1] else "top1"] = value
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
            window, step_time_s = 0, math.nan
            if time_s is not None and batches is not None:
                if before and batches > before[1] and time_s > before[0]:
                    window = step - before[2]
                    step_time_s = (time_s - before[0]) / window
                elif before is None:
                    window, step_time_s = step + 1, time_s / (step + 1)
                first = before is None
                before = (time_s, batches, step)
                run.steps.add(step + 1, step_time_s, row.get("loss"), window, warm_up=first)
            else:
                run.steps.add(step + 1, math.nan, row.get("loss"), 0)
        known = {"epoch", "step", self.loss, TIME, BATCHES, SAMPLES}
        unknown = [n for n in self.names if n not in known and not HELD_OUT.fullmatch(n)]
        if before is None:
            run.notes.append("the file has no times")
        if unknown:
            run.notes.append(f"columns left out: {log_values.list_names(unknown)}")
        run.notes += self.left_out.notes()
        return run
