"""MosaicML's Composer: its console (`[batch=366/48000]:` and metrics) and its FileLogger.

- FileLogger writes `[metric][batch=365]: loss/train/total: 2.3`. That number counts the batches
  done: loss and `time/` of a batch are logged before it counts, its rates after it. The console
  prints both below the line of the batch, which counts it already.
- `throughput/samples_per_sec` is of all devices over the last W batches, a rolling mean
  (SpeedMonitor, window_size; 100 unless the user says otherwise), without evaluations. It is
  there from batch W + 1 on. Where each batch is printed from the first on, W follows, and the
  rates at W + 1, 2 W + 1, ... are windows that do not overlap; the first batch is in none.
  Otherwise the throughput is the harmonic mean of all rates, whose windows may overlap.
- All numbers have four decimals. Samples per second over `throughput/device/samples_per_sec` are
  the devices, if near a whole number; `time/sample` over `time/batch` is the batch of all
  devices; `time/token` over `time/sample` are the tokens of a sample. If they are a whole number,
  a sample is a sequence of so many; else the lengths vary and are not imported.
- `time/train` has a unit that the log does not say (hours by default): not imported.
- `Eval metrics/eval/...`: MulticlassAccuracy is top-1, LanguageCrossEntropy and CrossEntropy are
  the loss, LanguagePerplexity is the perplexity; the notes name others. Lines of streams that are
  mixed (FileLogger with the console in it) count once, as FileLogger's.

Source: mosaicml/composer, composer/loggers and callbacks/speed_monitor.py, April 2026; lines of
princeton-nlp/LLM-Shearing#24 and mosaicml/composer#2357. No file of FileLogger was found in
public but that of its tests.
"""

import math
import re
from collections.abc import Iterator

from dlbench.imports import log_lines
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_lines import CUT_SHORT, LeftOut, count, real

FAMILY = "composer"
LINE_MARKS = (b"[metric][batch=", b" Train time/batch", b" Train loss/", b" Train throughput/")
METRIC = re.compile(r"^\[metric\]\[batch=(\d+)\]: (\S+): (\S+)\s*$")
PROGRESS = re.compile(
    r"^(?:\[epoch=\d+\])?\[(?:batch|epoch|sample|token|iteration)=(\d+)(?:/\d+)?\]"
)
EVALUATION = re.compile(r"^\[Eval batch=\d+/\d+\]")
CONSOLE = re.compile(r"^\s+(Train|Eval) (\S+): (\S+)\s*$")
LOSS, RATE = "loss/train/total", "throughput/samples_per_sec"
OF_DEVICE = "throughput/device/samples_per_sec"
BATCHES, SAMPLES, ALL_TOKENS = "time/batch", "time/sample", "time/token"
AFTER = "throughput/"  # metrics that are logged when their batch is done
USED = (LOSS, RATE, OF_DEVICE, BATCHES, SAMPLES, ALL_TOKENS)
SCORES = {
    "MulticlassAccuracy": "top1",
    "LanguagePerplexity": "perplexity",
    "LanguageCrossEntropy": "loss",
    "CrossEntropy": "loss",
}
EVAL = "metrics/eval/"


def recognise(log: LogFile) -> bool:
    if not any(mark in log.head for mark in LINE_MARKS):
        return False
    text = log_lines.head(log)
    metrics = re.search(r"^\[metric\]\[batch=\d+\]: \S+: ", text, re.M)
    printed = re.search(r"^\s+Train (?:time/batch|loss/train/|throughput/)\S*: ", text, re.M)
    return bool(metrics or printed)


def read(log: LogFile) -> Iterator[Imported]:
    yield from log_lines.read(log, _Run)


class _Run:
    """The metrics of one log: of each batch, counted from 1, by their names."""

    def __init__(self, log):
        self.log, self.last_line = log, 0
        self.file, self.console = {}, {}
        self.file_evals, self.console_evals = {}, {}
        self.console_batch, self.console_eval = None, 0
        self.unknown, self.losses = set(), set()
        self.left_out = LeftOut()

    def add(self, number, line, is_cut):
        self.last_line = number
        if is_cut:
            self.left_out.add(number, CUT_SHORT)
        elif match := METRIC.match(line):
            self.metric(number, count(match[1], 0), match[2], match[3])
        elif match := CONSOLE.match(line):
            self.printed(number, match[1] == "Eval", match[2], match[3])
        elif PROGRESS.match(line):
            self.console_batch = None
        elif EVALUATION.match(line):
            self.console_eval += 1

    def metric(self, line, batch, name, text):
        if batch is None:
            self.left_out.add(line, "a metric without a batch")
        elif name.startswith(EVAL):
            self._score(self.file_evals.setdefault(batch, {"step": batch}), name, text)
        elif name in USED:
            batch += not name.startswith(AFTER)
            self._keep(line, self.file, batch, name, text)
        elif "loss" in name.lower():
            self.losses.add(name)

    def printed(self, line, is_eval, name, text):
        """Add a console line, which is below the line of its batch; time/batch has the number."""
        if is_eval:
            if name.startswith(EVAL):
                row = {"step": self.console_batch} if self.console_batch else {}
                self._score(self.console_evals.setdefault(self.console_eval, row), name, text)
            return
        if name == BATCHES:
            before = count(text, 0)
            self.console_batch = None if before is None else before + 1
        if name in USED:
            if self.console_batch is None:
                self.left_out.add(line, "a metric with no time/batch above it")
            else:
                self._keep(line, self.console, self.console_batch, name, text)
        elif "loss" in name.lower():
            self.losses.add(name)

    def _keep(self, line, metrics, batch, name, text):
        value = log_lines.loss(text) if name == LOSS else real(text, 0)
        if value is None:
            self.left_out.add(line, f"{name} is not a number")
        else:
            known = metrics.setdefault(batch, {}).setdefault(name, value)
            log_lines.check_rank(self.log, line, (1, 1), (known, value))

    def _score(self, row, name, text):
        score = SCORES.get(name.removeprefix(EVAL).rpartition("/")[2])
        value = real(text) if score else None
        if value is None or (score == "top1" and not 0 <= value <= 1):
            self.unknown.add(name)
        else:
            row[score] = value

    def runs(self):
        metrics = self.file or self.console
        rows = dict(sorted(metrics.items()))
        if not any(LOSS in row or RATE in row for row in rows.values()):
            raise self.log.error(self.last_line, "no loss and no throughput of a batch in it")
        evals = self.file_evals or self.console_evals
        run = Imported(
            {"framework": "pytorch", "mode": "train", **_settings(rows)},
            evals=[{"split": "validation", **row} for row in evals.values() if set(row) - {"step"}],
            lines=(1, self.last_line),
        )
        window = _window(rows)
        rows = {batch: row for batch, row in rows.items() if LOSS in row or RATE in row}
        rated = [batch for batch, row in rows.items() if row.get(RATE)]
        ends = {batch for batch in rated if window and (batch - 1) % window == 0}
        for batch, row in rows.items():
            run.steps.add(batch, math.nan, row.get(LOSS), window if batch in ends else 0)
        rates = [rows[batch][RATE] for batch in rated]
        run.complete = lambda columns: _complete(columns, run, rows, ends, rates)
        if window:
            run.notes.append(
                f"rolling means of {window} batches, of which those that do not overlap are taken"
            )
        elif rates:
            run.notes.append(
                "rolling means of an unknown number of batches, which may overlap: "
                "images_per_second is the harmonic mean of all"
            )
        if self.unknown:
            run.notes.append(f"left out: {log_lines.list_names(self.unknown)}")
        if self.losses:
            run.notes.append(f"losses left out: {log_lines.list_names(self.losses)}")
        run.notes += self.left_out.notes()
        return [run]


def _settings(rows):
    """Columns computed from the metrics of the last batch that has them."""
    columns = {}
    for row in rows.values():
        rate = row.get(RATE)
        if rate and row.get(OF_DEVICE) and (near := _near(rate / row[OF_DEVICE])):
            columns["devices"] = near
        if row.get(SAMPLES) and row.get(ALL_TOKENS) and row[ALL_TOKENS] % row[SAMPLES] == 0:
            columns["item_shape"] = str(int(row[ALL_TOKENS] // row[SAMPLES]))
        if row.get(BATCHES) and row.get(SAMPLES) and row[SAMPLES] % row[BATCHES] == 0:
            columns["global_batch"] = int(row[SAMPLES] // row[BATCHES])
    return columns


def _near(ratio):
    """The integer within 1 % of a ratio of printed numbers; None if there is none."""
    near = round(ratio) if ratio < log_lines.MAX_COUNT else 0
    return near if near and abs(ratio - near) <= 0.01 * near else None


def _window(rows):
    """The number of batches of the rolling mean; None if the printed batches do not show it."""
    with_rate = next((batch for batch, row in rows.items() if row.get(RATE)), None)
    consecutive = list(rows) == list(range(1, len(rows) + 1))
    return with_rate - 1 if with_rate and with_rate > 1 and consecutive else None


def _complete(columns, run, rows, ends, rates):
    """Times of windows from their rates, if the batch is known, else the throughput alone."""
    batch = columns.get("global_batch")
    for place, number in enumerate(rows):
        if batch and number in ends:
            run.steps.step_time_s[place] = batch / rows[number][RATE]
    counted = [rows[number][RATE] for number in ends]
    if rates and not (batch and counted):
        some = counted or rates
        columns["images_per_second"] = len(some) / sum(1 / rate for rate in some)
