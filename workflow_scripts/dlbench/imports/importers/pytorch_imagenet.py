"""PyTorch's imagenet example and its kin: `Epoch: [0][  10/5005]  Time 0.3 ( 0.5) ...`.

- `Time` is the time of the batch that is printed, its bracket the mean over all batches of the
  epoch so far, in s with three decimals, loading data included. Mean times batches is the time
  since the epoch began; differences between two lines become windows, joined until the last digit
  leaves at most 1 % in doubt. Reading the loss waits for the device, so these are times of the
  computation.
- Each process of several prints its lines. All wait for one another in a step: of lines of one
  batch the slower counts. Where their means differ by over 10 %, the processes did not wait: two
  programs, whose lines cannot be separated without the launcher's prefixes. `Time` is of one
  process; the batch is not in the log (--fields).
- The first batch of the log is the warm-up. The first batches of later epochs, for which the
  reader starts again, count. In a log that was cut at its beginning the first window has the
  warm-up in it.
- Versions until 2022 print the number of batches before the one that is printed (from 0), later
  ones the number with it (from 1). A line of batch 0 or the last of an epoch shows which it is.
  Where both are cut off, the means do: from one line to the next, batches times mean grow by the
  time of the batches between them. If that fits both, numbers are taken as from 1, and the notes
  say so.
- `Loss`: of that batch of that process. ` * Acc@1 71.2 Acc@5 90.1` (formerly Prec@) is the
  evaluation after the epoch, in per cent; it becomes a row of evals.
- The epochs that were asked for are not printed: a log that ends within an epoch is failed, one
  that ends after an epoch is ok. The first epoch again, or an earlier one behind a line of the
  model or of a checkpoint that was loaded, begins the next run.

Source: pytorch/examples, imagenet/main.py of August 2025, and its history; for old lines
NVIDIA/apex and NNCF's tutorials, which print them. No whole public log was at hand: the samples
of the tests follow the program.
"""

import itertools
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from dlbench.imports import log_lines
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_lines import CUT_SHORT, MAX_TIME_S, LeftOut, count, real

FAMILY = "pytorch_imagenet"
LINE_MARKS = (b"Epoch: [",)
LINE = re.compile(r"Epoch: \[(\d+)\]\[\s*(\d+)/\s*(\d+)\]\s+Time\s+([\d.]+)\s+\(\s*([\d.]+)\)(.*)")
LOSS = re.compile(r"Loss\s+(\S+) \(")
SCORE = re.compile(r"^\s?\* (?:Acc|Prec)@1 ([\d.]+) (?:Acc|Prec)@5 ([\d.]+)")
BEGINS = re.compile(r"=> (?:creating model|using pre-trained|loaded checkpoint) ")
DATA = re.compile(r"Data\s+[\d.]+\s+\(\s*([\d.]+)\)")
HALF_DIGIT_S = 0.0005


class _Line(NamedTuple):
    """A printed batch; its number counts from 1 in each epoch."""

    number: int
    time_s: float
    mean_s: float
    loss: float | None


def recognise(log: LogFile) -> bool:
    return any(DATA.search(match[6]) for match in LINE.finditer(log.head_text))


def read(log: LogFile) -> Iterator[Imported]:
    yield from log_lines.read(log, _Reader)


class _Reader:
    """The runs in the lines of one process, or of several without launcher's prefixes."""

    def __init__(self, log):
        self.log, self.done, self.run = log, [], _Run(1)

    def add(self, number, line, is_cut):
        if is_cut:
            self.run.left_out.add(number, CUT_SHORT)
        elif match := LINE.search(line):
            epoch, batch = count(match[1], 0), count(match[2], 0)
            printed, place = self.run.printed, (epoch or 0, batch or 0)
            # No process is two lines ahead of another.
            if printed and place < printed[-1] and place not in printed[-2:]:
                log_lines.check_begin(self.log, number, place, printed[0])
                self._next(number)
            if not self.run.printed or place > self.run.printed[-1]:
                self.run.printed.append(place)
            self.run.add(number, epoch, match)
        elif self.run.epochs and BEGINS.match(line):
            self._next(number)
        elif match := SCORE.match(line):
            self.run.add_scores(number, match)
        self.run.last_line = number

    def _next(self, number):
        self.done.append(self.run)
        self.run = _Run(number)

    def runs(self):
        runs = [run for run in (*self.done, self.run) if run.epochs] or [self.run]
        return [run.imported(self.log) for run in runs]


class _Run:
    def __init__(self, first_line):
        self.first_line = self.last_line = first_line
        self.epochs = {}  # lines by number, by epoch from 0
        self.printed = []  # (epoch, batch) of the lines, each once
        self.batches = None  # of an epoch
        self.evals, self.data = {}, []
        self.means = {}  # least and largest of the lines of one batch, by epoch and batch
        self.loss_difference = 0.0  # most that the losses of one batch differ by
        self.without_loss = 0
        self.left_out = LeftOut()

    def add(self, line, epoch, match):
        batch, batches = count(match[2], 0), count(match[3])
        time_s, mean_s = (real(match[n], 0, MAX_TIME_S) for n in (4, 5))
        if None in (epoch, batch, batches, time_s, mean_s):
            self.left_out.add(line, "a batch without a number or a time")
            return
        self.batches = self.batches or batches
        loss = LOSS.search(match[6])
        self.without_loss += not loss and "loss" in match[6].lower()
        parsed = _Line(batch, time_s, mean_s, log_lines.loss(loss[1]) if loss else None)
        lines = self.epochs.setdefault(epoch, {})
        if batch in lines:
            self._compare(epoch, parsed, lines[batch])
        if batch not in lines or mean_s > lines[batch].mean_s:
            lines[batch] = parsed
        if data := DATA.search(match[6]):
            self.data.append(real(data[1], 0) or 0)

    def _compare(self, epoch, line, other):
        """Record how much two lines of one batch differ."""
        means = (line.mean_s, other.mean_s, *self.means.get((epoch, line.number), ()))
        self.means[epoch, line.number] = (min(means), max(means))
        if None not in (line.loss, other.loss) and math.isfinite(line.loss - other.loss):
            self.loss_difference = max(self.loss_difference, abs(line.loss - other.loss))

    def add_scores(self, line, match):
        scores = [real(match[n], 0, 100) for n in (1, 2)]
        if None in scores:
            self.left_out.add(line, "an accuracy that is not between 0 and 100 %")
            return
        epoch = max(self.epochs, default=0) + 1
        self.evals[epoch] = {
            "split": "validation",
            "epoch": epoch,
            "top1": scores[0] / 100,
            "top5": scores[1] / 100,
        }

    def imported(self, log):
        if not self.epochs:
            raise log.error(self.last_line, "no batch of an epoch could be read")
        drift = self._drift()
        if drift > log_lines.AGREE:
            raise log.error(
                self.first_line,
                f"processes whose times differ by {drift:.0%} printed into this log: they did not "
                f"wait for one another, and {log_lines.UNKNOWN_RANKS_HINT}",
            )
        columns = {"framework": "pytorch", "mode": "train"}
        run = Imported(
            columns, evals=list(self.evals.values()), lines=(self.first_line, self.last_line)
        )
        first, from_zero = min(self.epochs), self._counts_from_zero()
        for epoch in sorted(self.epochs):
            lines = sorted(self.epochs[epoch].values())
            if from_zero:
                lines = [line._replace(number=line.number + 1) for line in lines]
            if not self.means and not _fits(lines, 1):
                run.columns["contradicts"] = (
                    f"times of batches and their means in epoch {epoch + 1} contradict one another"
                )
            self._add_epoch(run, epoch, lines, epoch == first)
        self._end(run, lines)
        if run.steps.warm_up[0]:
            run.notes.append("the first batch is the warm-up; first batches of later epochs count")
        else:
            run.notes.append(
                f"the log begins at batch {run.steps.step[0] - first * self.batches} of its epoch: "
                "the warm-up is in the first window"
            )
        if from_zero is None:
            run.notes.append(
                "whether batches are counted from 0 or from 1 is unknown, the printed means fit "
                "both: taken as from 1"
            )
        if self.means:
            run.notes.append(
                "lines of several processes: the slower of each batch counts; their times differ "
                f"by {drift:.1%}, losses by up to {self.loss_difference:.4g}"
            )
        if self.without_loss:
            run.notes.append(f"no loss could be read in {self.without_loss} lines")
        if self.data:
            run.notes.append(
                f"waiting for data took {self.data[-1]:g} s of a batch (the last mean printed)"
            )
        run.notes += self.left_out.notes()
        return run

    def _drift(self):
        """The relative difference of the times of processes for the same batches.

        Processes start at different times. While they wait for one another, the difference
        between their lines of the same batch does not grow.
        """
        drift = 0.0
        for epoch in {epoch for epoch, _ in self.means}:
            (first, *_, last) = 2 * sorted(batch for of, batch in self.means if of == epoch)
            gaps, took = [], []
            for batch in (first, last):
                low, high = self.means[epoch, batch]
                gaps.append(batch * (high - low))
                took.append(batch * low)
            doubt_s = 2 * (first + last) * HALF_DIGIT_S
            grown_s = abs(gaps[1] - gaps[0]) - doubt_s
            if grown_s > 0 and took[1] > took[0]:
                drift = max(drift, grown_s / (took[1] - took[0]))
        return drift

    def _counts_from_zero(self):
        """Whether batch numbers start at 0; None if the log does not show it."""
        epochs = [sorted(lines.values()) for lines in self.epochs.values()]
        if any(lines[0].number == 0 for lines in epochs):
            return True
        if any(lines[-1].number == self.batches for lines in epochs):
            return False
        fits = [all(_fits(lines, first) for lines in epochs) for first in (0, 1)]
        if fits[0] == fits[1]:
            return False if any(lines[0].number == 1 for lines in epochs) else None
        return fits[0]

    def _add_epoch(self, run, epoch, lines, is_first):
        """Add a row for each line, with a time where a window ends."""
        done, before, before_s = epoch * self.batches, 0, 0.0
        ends = _window_ends(lines, 1 if is_first and lines[0].number == 1 else 0)
        for row, line in enumerate(lines):
            took_s = line.number * line.mean_s
            if row == 0 and is_first and line.number == 1:
                run.steps.add(done + 1, line.time_s, line.loss, 1, warm_up=True)
                before, before_s = 1, line.time_s
            elif row in ends:
                window = line.number - before
                mean_s = (took_s - before_s) / window
                if not before or line.mean_s == before_s / before:  # without rounding a difference
                    mean_s = line.mean_s
                run.steps.add(done + line.number, mean_s, line.loss, window)
                before, before_s = line.number, took_s
            else:
                run.steps.add(done + line.number, math.nan, line.loss, 0)

    def _end(self, run, lines):
        """Set the status to failed if the log ends before the last line of an epoch."""
        interval = lines[1].number - lines[0].number if len(lines) > 1 else self.batches
        last = max(self.epochs)
        if last + 1 not in self.evals and lines[-1].number + interval <= self.batches:
            run.status = "failed"
            run.message = (
                f"the log ends at batch {lines[-1].number} of {self.batches} of epoch {last + 1}"
            )


def _window_ends(lines, warm_up):
    """The rows at which windows end.

    `warm_up`: number of batches at the beginning that belong to no window.
    """
    start = (lines[0].time_s, HALF_DIGIT_S) if warm_up else (0.0, 0.0)
    readings = ((line.number * line.mean_s, line.number * HALF_DIGIT_S) for line in lines[warm_up:])
    return {warm_up + row for row in log_lines.window_ends(readings, start)}


def _fits(lines, first):
    """Whether the printed means are consistent with batch numbers that start at `first`."""
    for before, line in itertools.pairwise(lines):
        done, now = before.number + 1 - first, line.number + 1 - first
        between_s = now * line.mean_s - done * before.mean_s - line.time_s
        doubt_s = (now + done + 1) * HALF_DIGIT_S
        if between_s < -doubt_s or (now - done == 1 and between_s > doubt_s):
            return False
    if lines[0].number == first:  # the mean of one batch is its time
        return abs(lines[0].mean_s - lines[0].time_s) <= 2 * HALF_DIGIT_S
    return True
