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
- The growth of `consumed samples` must be the batches of the lines, or the run contradicts itself.
- `lm loss` is the mean over the iterations of the line that were not skipped. Skipped iterations
  (overflow of a gradient) take time and count as iterations.
- `throughput per GPU` is counted by Megatron's own formula of FLOPs: in the notes alone.
- Only the last rank prints these lines. Arguments are printed once, before them. An iteration no
  later than the one before, or arguments again, begins the next run.
- `validation loss at iteration ...` is a row of evals, with its perplexity.

Source: NVIDIA/Megatron-LM, megatron/training/training.py and arguments.py, of 2023 to August
2026; lines of NVIDIA/Megatron-LM#756 and epfLLM/Megatron-LLM#11.
"""

import itertools
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from dlbench.imports import log_values
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import MOST_TIME_S, LeftOut, count, real
from dlbench.study import contradictions

FAMILY = "megatron"
LINE = re.compile(r"\biteration\s+(\d+)/\s*(\d+) \|(.*\belapsed time per iteration \((m?s)\):.*)")
ARGUMENT = re.compile(r"^(?:\[[^\]]*\]:?)?  (\w+) \.{2,} (.*)$")
ARGUMENTS = re.compile(r"-{8,} arguments -{8,}")
EVALUATION = re.compile(
    r"(?:validation|test) loss at .*?\| lm loss value: (\S+) \|(?: lm loss PPL: (\S+) \|)?"
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
    """One line: times in s, the rest as printed; None is what it does not say."""

    iteration: int
    elapsed_s: float
    loss: float | None
    batch: int | None
    consumed: int | None


def recognise(log: LogFile) -> bool:
    text = log.head_text
    # The arguments may be longer than the head.
    return bool(LINE.search(text) or (ARGUMENTS.search(text) and PARALLEL[0] in text))


def read(log: LogFile) -> Iterator[Imported]:
    run, number = _Run(1, {}), 0
    for number, line in log.lines():
        if number == log.unfinished:
            run.left_out.add(number, "no newline at its end, so it may be cut short")
        elif match := LINE.search(line):
            iteration, total = count(match[1]), count(match[2])
            if run.rows and iteration is not None and iteration <= run.rows[-1].iteration:
                yield run.imported(log, number - 1)
                run = _Run(number, run.settings)
            run.add(number, iteration, total, _fields(match[3]), match[4])
        elif ARGUMENTS.search(line) and run.rows:
            yield run.imported(log, number - 1)
            run = _Run(number, {})
        elif match := ARGUMENT.match(line):
            run.settings[match[1]] = match[2].strip()
        elif match := EVALUATION.search(line):
            run.evaluated(line, match)
    yield run.imported(log, number)


def _fields(text):
    """What a line has between its bars: texts by their names."""
    pairs = (part.partition(": ") for part in text.split("|"))
    return {name.strip(): value.strip() for name, _, value in pairs}


class _Run:
    """The lines of one run."""

    def __init__(self, first_line, settings):
        self.first_line, self.settings = first_line, settings
        self.rows, self.evals = [], []
        self.total = None
        self.skipped, self.flops = 0, []
        self.left_out = LeftOut()

    def add(self, line, iteration, total, fields, unit):
        text = fields.get(f"elapsed time per iteration ({unit})", "")
        # Some forks print a mean after a slash.
        elapsed = real(text.partition("/")[0], 0, MOST_TIME_S)
        if iteration is None or not elapsed:
            self.left_out.add(line, "an iteration without a number or a time")
            return
        self.total = total or self.total
        name = next((name for name in LOSSES if name in fields), None)
        self.rows.append(
            _Row(
                iteration,
                elapsed / 1000 if unit == "ms" else elapsed,
                log_values.loss(fields[name]) if name else None,
                count(fields.get("global batch size")),
                count(fields.get("consumed samples"), 0, 2**62),
            )
        )
        self.skipped += count(fields.get("number of skipped iterations"), 0) or 0
        flops = real(fields.get("throughput per GPU (TFLOP/s/GPU)"), 0)
        if flops is not None:
            self.flops.append(flops)

    def evaluated(self, line, match):
        loss, perplexity = log_values.loss(match[1]), real(match[2], 0)
        step = re.search(r"iteration (\d+)", line)
        row = {
            "split": "test" if "test set" in line or line.startswith("test") else "validation",
            "step": count(step[1]) if step else None,
            "loss": loss,
            "perplexity": perplexity,
        }
        self.evals.append({name: value for name, value in row.items() if value is not None})

    def imported(self, log, last_line):
        if not self.rows:
            raise log.error(last_line, "no iteration with a time could be read")
        run = Imported(self._columns(), evals=self.evals, lines=(self.first_line, last_line))
        windows = self._add_steps(run)
        self._batch(run, windows)
        if self.total and self.rows[-1].iteration < self.total:
            run.status = "failed"
            run.message = f"the log ends at iteration {self.rows[-1].iteration} of {self.total}"
        if self.skipped:
            run.notes.append(f"{self.skipped} iterations were skipped, whose time is counted")
        if self.flops:
            mean = sum(self.flops) / len(self.flops)
            run.notes.append(
                f"{mean:.1f} TFLOP/s per device by Megatron's own count, mean of {len(self.flops)} "
                "lines"
            )
        run.notes += self.left_out.notes()
        return run

    def _columns(self):
        columns = {"framework": "pytorch", "mode": "train"}
        for name, column in SETTINGS.items():
            if (value := count(self.settings.get(name), 0)) is not None:
                columns[column] = str(value) if column == "item_shape" else value
        if (rate := real(self.settings.get("lr"), 0)) is not None:
            columns["learning_rate"] = rate
        if optimizer := self.settings.get("optimizer"):
            columns["optimizer"] = optimizer
        return columns

    def _add_steps(self, run):
        """Add the windows; returns those that count, as (iterations, seconds, batch)."""
        interval = self._interval()
        windows, before = [], None
        for row in self.rows:
            steps, time_s = 1, row.elapsed_s
            if before is None:
                steps = 1 if row.iteration % interval else interval
            elif before is self.rows[0] and before.iteration % interval:
                # That first iteration is once more in this mean.
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
        if parallel := [f"{name} {self.settings[name]}" for name in PARALLEL if self._splits(name)]:
            run.notes.append(", ".join(parallel))
        return windows

    def _splits(self, name):
        return (count(self.settings.get(name)) or 1) > 1

    def _interval(self):
        """How many iterations lie between two lines: as the arguments say, or as it looks."""
        said = count(self.settings.get("log_interval"))
        if said or len(self.rows) < 2:
            return said or 1
        numbers = [row.iteration for row in self.rows]
        gap = numbers[1] - numbers[0]
        if len(numbers) == 2:  # the first iteration and the first interval, or two intervals
            return gap + 1 if numbers[1] % gap and not numbers[1] % (gap + 1) else gap
        regular = math.gcd(*(b - a for a, b in itertools.pairwise(numbers[1:])))
        return gap if regular % gap == 0 else regular

    def _check_samples(self, run):
        """Say if the samples that lines count are not those of their batches."""
        lines = [row for row in self.rows if row.batch and row.consumed is not None]
        if len(lines) < 2 or len(lines) < len(self.rows):
            return
        counted = lines[-1].consumed - lines[0].consumed
        expected = sum((b.iteration - a.iteration) * b.batch for a, b in itertools.pairwise(lines))
        if abs(counted - expected) > contradictions.MOST_DIFFERENCE * expected:
            run.columns["contradicts"] = (
                f"iterations {lines[0].iteration} to {lines[-1].iteration} consumed {counted} "
                f"samples, and their global batches are {expected} samples"
            )

    def _batch(self, run, windows):
        self._check_samples(run)
        batches = {row.batch for row in self.rows if row.batch}
        if len(batches) == 1:
            (run.columns["global_batch"],) = batches
        elif batches and windows and all(batch for _, _, batch in windows):
            items = sum(steps * batch for steps, _, batch in windows)
            run.columns["images_per_second"] = items / sum(n * time_s for n, time_s, _ in windows)
            run.notes.append(f"global batches from {min(batches)} to {max(batches)}")
