"""Megatron-LM and its forks: `iteration 10/ 100 | consumed samples: ... |` each log_interval.

- `elapsed time per iteration` is a mean over the iterations since the line before, by the clock
  of one process between two barriers; in ms, in DeepSpeed's fork in s. Loading data is in it,
  evaluations and the writing of checkpoints are not. Each line becomes a window.
- Today's version also prints a line for the first iteration, and that iteration is once more in
  the mean of the next line; it is taken out there. With a line each iteration, a log does not say
  which version wrote it, so both of its first lines count as warm-up. In other logs the first
  line does.
- `consumed samples` and `global batch size` are of all devices; a sample is a sequence of
  seq_length tokens. Where the batch grows, images_per_second is the samples of all windows over
  their time.
- The growth of `consumed samples` must be the batches of the lines, and TFLOP/s times time the
  same in all lines, or the run contradicts itself.
- `lm loss` (`lm-loss` in forks) is the mean over the iterations of the line that were not skipped.
  Skipped iterations (overflow of a gradient) take time and count as iterations.
- `throughput per GPU` is counted by Megatron's own formula of FLOPs: in the notes alone.
- Only the last rank prints these lines, in some forks each rank: then they count once. Arguments
  are printed before them. Arguments again, or the first iteration again, begin the next run.
- `validation loss at iteration ...` is a row of evals, with its perplexity.

Source: NVIDIA/Megatron-LM, megatron/training/training.py and arguments.py, of 2023 to August
2026; lines of NVIDIA/Megatron-LM#756 and epfLLM/Megatron-LLM#11.
"""

import itertools
import math
import re
import statistics
from collections.abc import Iterator
from typing import NamedTuple

from dlbench.imports import log_lines
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_lines import CUT_SHORT, MAX_TIME_S, LeftOut, count, real
from dlbench.study import contradictions

FAMILY = "megatron"
LINE_MARKS = (b"elapsed time per iteration (", b"tensor_model_parallel_size ..")
LINE = re.compile(r"\biteration\s+(\d+)/\s*(\d+) \|(.*\belapsed time per iteration \((m?s)\):.*)")
BRIDGE = "s GPU utilization: "  # of Megatron-Bridge, which patterns/megatron_bridge.yaml reads
ARGUMENT = re.compile(r"^ {1,2}(\w+) \.{2,} (.*)$")
ARGUMENTS = re.compile(r"-{8,} arguments -{8,}")
EVALUATION = re.compile(
    r"(?:validation|test) loss at .*?\| lm[ _-]loss value: (\S+) \|(?: lm[ _-]loss PPL: (\S+) \|)?"
)
LOSSES = ("lm loss", "loss")
SETTINGS = {
    "world_size": "devices",
    "seed": "seed",
    "train_iters": "steps",
    "seq_length": "item_shape",
}
PARALLEL = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


class _Row(NamedTuple):
    """The values of a line: times in s, others as printed; None: missing in the line."""

    iteration: int
    elapsed_s: float
    loss: float | None
    batch: int | None
    total: int | None
    skipped: int
    flops: float | None
    consumed: int | None
    sequence: int | None
    tokens_per_second: float | None


def recognise(log: LogFile) -> bool:
    text = log.head_text
    if BRIDGE in text:
        return False
    # The arguments may be longer than the head.
    return bool(LINE.search(text) or (ARGUMENTS.search(text) and PARALLEL[0] in text))


def read(log: LogFile) -> Iterator[Imported]:
    arguments = _Arguments()
    yield from log_lines.read(log, lambda log: _Reader(log, arguments))


class _Arguments:
    """The last arguments that were printed, by one rank for all ranks."""

    def __init__(self):
        self.settings, self.used = {}, False

    def begin(self):
        if self.used:
            self.settings, self.used = {}, False


class _Reader:
    """The runs in the lines of one process, or of several without launcher's prefixes."""

    def __init__(self, log, arguments):
        self.log, self.arguments = log, arguments
        self.done, self.run = [], _Run(1)

    def add(self, number, line, is_cut):
        run = self.run
        if is_cut:
            run.left_out.add(number, CUT_SHORT)
        elif match := LINE.search(line):
            row = run.row(number, match)
            if row and not run.is_of_another_rank(self.log, number, row):
                if run.rows and self._arguments_are_new():
                    run = self._next(number)
                elif run.rows and row.iteration < run.rows[-1].iteration:
                    log_lines.check_begin(self.log, number, row.iteration, run.rows[0].iteration)
                    run = self._next(number)
                run.settings, self.arguments.used = self.arguments.settings, True
                run.add(row)
        elif ARGUMENTS.search(line):
            self.arguments.begin()
            if run.rows and self._arguments_are_new():
                run = self._next(number)
        elif match := ARGUMENT.match(line):
            self.arguments.settings[match[1]] = match[2].strip()
        elif match := EVALUATION.search(line):
            run.add_evaluation(line, match)
        run.last_line = number

    def _arguments_are_new(self):
        return self.run.settings is not self.arguments.settings

    def _next(self, number):
        self.done.append(self.run)
        self.run = _Run(number)
        return self.run

    def runs(self):
        runs = [run for run in (*self.done, self.run) if run.rows] or [self.run]
        return [run.imported(self.log) for run in runs]


class _Run:
    def __init__(self, first_line):
        self.first_line = self.last_line = first_line
        self.settings = {}
        self.rows, self.by_iteration, self.evals = [], {}, []
        self.repeated_lines, self.time_difference = 0, 0.0  # of lines of other ranks
        self.losses = set()  # names of those that are left out
        self.left_out = LeftOut()

    def row(self, line, match):
        """Parse a line; None if it lacks the iteration or the time."""
        iteration, total, fields, unit = count(match[1]), count(match[2]), match[3], match[4]
        pairs = (part.partition(": ") for part in fields.split("|"))
        fields = {name.strip(): value.strip() for name, _, value in pairs}
        text = fields.get(f"elapsed time per iteration ({unit})", "")
        # Some forks print a mean after a slash.
        elapsed = real(text.partition("/")[0], 0, MAX_TIME_S)
        if iteration is None or not elapsed:
            self.left_out.add(line, "an iteration without a number or a time")
            return None
        losses = {
            re.sub("[-_]", " ", name.lower()): name
            for name in fields
            if "loss" in name.lower() and "scale" not in name.lower()
        }
        name = next((losses[known] for known in LOSSES if known in losses), None)
        self.losses |= set(losses.values()) - {name}
        return _Row(
            iteration,
            elapsed / 1000 if unit == "ms" else elapsed,
            log_lines.loss(fields[name]) if name else None,
            count(fields.get("global batch size")),
            total,
            count(fields.get("number of skipped iterations"), 0) or 0,
            real(fields.get("throughput per GPU (TFLOP/s/GPU)") or fields.get("TFLOPs"), 0),
            count(fields.get("consumed samples"), 0, 2**62),
            count(fields.get("actual seqlen")),
            real(fields.get("tokens per gpu per second (tgs)"), 0),
        )

    def is_of_another_rank(self, log, line, row):
        """Whether another rank printed a line of this run again; records how much the two differ.

        No rank is two lines ahead of another, unless a launcher printed the ranks' output in
        blocks; then the lines are equal.
        """
        known = self.by_iteration.get(row.iteration)
        if known is None:
            return False
        times, losses = (row.elapsed_s, known.elapsed_s), (row.loss, known.loss)
        if known != row and known is self.rows[-1]:
            log_lines.check_rank(log, line, times, losses)
        time_difference = abs(row.elapsed_s / known.elapsed_s - 1)
        is_behind = known in self.rows[-2:] and time_difference <= log_lines.AGREE
        if known != row and not (is_behind and str(row.loss) == str(known.loss)):
            return False
        self.repeated_lines += 1
        self.time_difference = max(self.time_difference, time_difference)
        return True

    def add(self, row):
        self.rows.append(row)
        self.by_iteration[row.iteration] = row

    def add_evaluation(self, line, match):
        loss, perplexity = log_lines.loss(match[1]), real(match[2], 0)
        step = re.search(r"iteration (\d+)", line)
        is_test = "test set" in line or line.startswith("test")
        row = {"step": count(step[1]) if step else None, "loss": loss, "perplexity": perplexity}
        known = {name: value for name, value in row.items() if value is not None}
        self.evals.append({"split": "test" if is_test else "validation", **known})

    def imported(self, log):
        if not self.rows:
            raise log.error(self.last_line, "no iteration with a time could be read")
        run = Imported(self._columns(), evals=self.evals, lines=(self.first_line, self.last_line))
        windows = self._add_steps(run)
        self._batch(run, windows)
        total = next((row.total for row in reversed(self.rows) if row.total), None)
        if total and self.rows[-1].iteration < total:
            run.status = "failed"
            run.message = f"the log ends at iteration {self.rows[-1].iteration} of {total}"
        if skipped := sum(row.skipped for row in self.rows):
            run.notes.append(f"{skipped} iterations were skipped, whose time is counted")
        if flops := [row.flops for row in self.rows if row.flops is not None]:
            run.notes.append(
                f"{sum(flops) / len(flops):.1f} TFLOP/s per device by Megatron's own count, mean "
                f"of {len(flops)} lines"
            )
        if self.repeated_lines:
            run.notes.append(
                f"{self.repeated_lines} lines of other ranks: the first of each iteration counts; "
                f"times differ by up to {self.time_difference:.1%}"
            )
        if self.losses:
            run.notes.append(f"losses left out: {log_lines.list_names(self.losses)}")
        run.notes += self.left_out.notes()
        return run

    def _columns(self):
        columns = {"framework": "pytorch", "mode": "train"}
        for name, column in SETTINGS.items():
            if (value := count(self.settings.get(name), 0)) is not None:
                columns[column] = str(value) if column == "item_shape" else value
        last = self.rows[-1]
        if last.sequence:  # of Megatron-DeepSpeed
            columns.setdefault("item_shape", str(last.sequence))
        if last.sequence and last.batch and last.tokens_per_second:
            tokens_per_second = last.batch * last.sequence / last.elapsed_s
            columns.setdefault("devices", round(tokens_per_second / last.tokens_per_second) or None)
        if (rate := real(self.settings.get("lr"), 0)) is not None:
            columns["learning_rate"] = rate
        if optimizer := self.settings.get("optimizer"):
            columns["optimizer"] = optimizer
        return columns

    def _add_steps(self, run):
        """Add the windows to the run. Returns the measured ones: (iterations, seconds, batch)."""
        interval = self._interval()
        windows, before = [], None
        for row in self.rows:
            steps, time_s = 1, row.elapsed_s
            if before is None:
                steps = 1 if row.iteration % interval else interval
            elif before is self.rows[0] and before.iteration % interval:
                # This mean includes the first iteration again.
                steps = row.iteration - before.iteration
                time_s = ((steps + 1) * row.elapsed_s - before.elapsed_s) / steps
            else:
                steps = min(row.iteration - before.iteration, interval)
            warm_up = before is None or (interval == 1 and before is self.rows[0])
            if time_s > 0:
                run.steps.add(row.iteration, time_s, row.loss, steps, warm_up)
                if not warm_up:
                    windows.append((steps, time_s, row.batch))
            else:
                run.steps.add(row.iteration, math.nan, row.loss, 0)
                run.notes.append(f"iteration {row.iteration}: less time than the first alone")
            before = row
        run.notes.append(
            "the first lines are the warm-up" if interval == 1 else "the first line is the warm-up"
        )
        parallel = [name for name in PARALLEL if (count(self.settings.get(name)) or 1) > 1]
        run.notes += [f"{name} {self.settings[name]}" for name in parallel]
        return windows

    def _interval(self):
        """The number of iterations between two lines, from the arguments or else from the lines."""
        stated = count(self.settings.get("log_interval"))
        iterations = sorted({row.iteration for row in self.rows})  # a damaged log repeats some
        if stated or len(iterations) < 2:
            return stated or 1
        gap = iterations[1] - iterations[0]
        if len(iterations) == 2:  # the first iteration and the first interval, or two intervals
            return gap + 1 if iterations[1] % gap and not iterations[1] % (gap + 1) else gap
        regular = math.gcd(*(b - a for a, b in itertools.pairwise(iterations[1:])))
        return gap if regular % gap == 0 else regular

    def _check_flops(self, run):
        """Mark the run if the FLOPs of a sample, rate times time, differ between lines."""
        flops = {r.iteration: r.flops * r.elapsed_s / (r.batch or 1) for r in self.rows if r.flops}
        usual = statistics.median(flops.values()) if flops else 0
        for iteration, value in flops.items():
            if abs(value / usual - 1) > log_lines.AGREE:
                run.columns["contradicts"] = (
                    f"TFLOP/s times time of iteration {iteration} are {value / usual:.3g} times "
                    "those of others"
                )

    def _check_samples(self, run):
        """Mark the run if the consumed samples differ from the sum of the batches."""
        lines = [row for row in self.rows if row.batch and row.consumed is not None]
        if len(lines) < 2 or len(lines) < len(self.rows):
            return
        counted = lines[-1].consumed - lines[0].consumed
        expected = sum((b.iteration - a.iteration) * b.batch for a, b in itertools.pairwise(lines))
        if abs(counted - expected) > contradictions.MAX_DIFFERENCE * expected:
            run.columns["contradicts"] = (
                f"iterations {lines[0].iteration} to {lines[-1].iteration} consumed {counted} "
                f"samples, and their global batches are {expected} samples"
            )

    def _batch(self, run, windows):
        self._check_flops(run)
        self._check_samples(run)
        batches = {row.batch for row in self.rows if row.batch}
        if len(batches) == 1:
            (run.columns["global_batch"],) = batches
        elif batches and windows and all(batch for _, _, batch in windows):
            items = sum(steps * batch for steps, _, batch in windows)
            run.columns["images_per_second"] = items / sum(n * time_s for n, time_s, _ in windows)
            run.notes.append(f"global batches from {min(batches)} to {max(batches)}")
