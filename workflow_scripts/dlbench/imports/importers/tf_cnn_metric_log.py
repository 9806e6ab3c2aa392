"""metric.log of tf_cnn_benchmarks (--benchmark_log_dir), JSON lines.

- `current_examples_per_sec` is the printed rate with all digits, a cumulative mean of one process
  (tf_cnn_benchmarks.py). It is undone here if the batch is known, from
  benchmark.log or the user. `loss` in the extras is that of the step alone.
- `average_examples_per_sec` is `total images/sec`, of all workers, by the clock: the throughput.
- `eval_*` are of an evaluation after the training. Their global_step counts the warm-up, which
  that of the training does not.
- Dates are UTC, of the writing of the line. The run ends with its last line of training.
- The file is appended to: another run begins where step numbers start again.

Source: tensorflow/models, official/utils/logs/logger.py; benchmark_cnn.py of tensorflow/benchmarks.
"""

import json
import math
import re
from array import array
from collections.abc import Iterator

from dlbench.imports import log_values
from dlbench.imports.importers import Imported, Steps, tf_cnn_benchmarks
from dlbench.imports.log_file import LogFile

FAMILY = "tf_cnn_benchmarks"
RATE, TOTAL = "current_examples_per_sec", "average_examples_per_sec"
SCORES = {"eval_top_1_accuracy": "top1", "eval_top_5_accuracy": "top5"}
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
NAMES = re.compile(rb'"name": ?"(?:current_|average_|eval_average_)examples_per_sec"')


def recognise(log: LogFile) -> bool:
    first = log.head.partition(b"\n")[0]
    return first[:1] == b"{" and b'"global_step"' in first and bool(NAMES.search(first))


def read(log: LogFile) -> Iterator[Imported]:
    runs: list[_Run] = []
    for first, block in log.blocks():
        for number, line in enumerate(block.split(b"\n")[:-1], start=first):
            if not line.strip():
                continue
            name, value, step, date, extras = _event(log, number, line)
            if not runs or runs[-1].ends_before(name, step):
                runs.append(_Run(number))
            runs[-1].add(log, number, name, value, step, date, extras)
    if log.unfinished and runs:
        runs[-1].notes.append(f"line {log.unfinished} was cut short and is left out")
    if not runs:
        raise log.error(1, "no whole line of a metric.log")
    for run in runs:
        yield run.imported(log)


def _event(log, number, line):
    try:
        event = json.loads(line)
        extras = {extra["name"]: extra["value"] for extra in event.get("extras") or ()}
        step = event["global_step"]
        date = tf_cnn_benchmarks.utc_date(event["timestamp"])
        if not 0 <= step < 2**62 or int(step) != step:
            raise ValueError(f"step {step}")
        return str(event["name"]), float(event["value"]), int(step), date, extras
    except MALFORMED as error:
        raise log.error(number, f"not an event of a metric.log: {error!r}"[:300]) from error


class _Run:
    """The events of one run."""

    def __init__(self, number):
        self.lines = (number, number)
        self.steps, self.rates, self.dates = Steps(), array("d"), []
        self.total = self.ended_at = None
        self.evals, self.eval_dates, self.notes, self.unknown = {}, {}, [], {}

    def ends_before(self, name, step):
        """Whether an event belongs to the next run."""
        has_rows = len(self.steps) or self.total is not None
        # Equal steps are of other ranks.
        restarted = self.total is not None or (len(self.steps) and step < self.steps.step[-1])
        return name == RATE and has_rows and restarted

    def add(self, log, number, name, value, step, date, extras):
        self.lines = (self.lines[0], number)
        if name == RATE:
            self.steps.add(step, math.nan, log_values.loss(extras.get("loss")), 0)
            self.rates.append(value)
            self.dates.append(date)
            self.ended_at = date
        elif name == TOTAL:
            if not math.isfinite(value) or value < 0:
                raise log.error(number, f"{TOTAL} is {value}")
            self.total = value if self.total is None else min(value, self.total)
            self.ended_at = date
        elif name in SCORES:
            self.evals.setdefault(step, {"split": "validation", "step": step})[SCORES[name]] = value
            self.eval_dates[step] = date
        elif name != "eval_average_examples_per_sec":
            self.unknown[name] = self.unknown.get(name, 0) + 1

    def imported(self, log):
        steps = self.steps
        notes = self.notes + [f"left out: {count} x {name}" for name, count in self.unknown.items()]
        dates = dict(zip(steps.step, self.dates, strict=True))
        if len(dates) < len(steps):
            ranks = tf_cnn_benchmarks.merge_ranks(steps, self.rates)
            if not ranks:
                raise log.error(self.lines[0], "steps go back from here on: of which process?")
            notes.append(f"{ranks} processes wrote into this log: the slowest counts")
        tf_cnn_benchmarks.without_times(steps)
        columns = {"framework": "tensorflow"}
        if self.total:
            columns["images_per_second"] = self.total
        if self.ended_at:
            columns["ended_at"] = self.ended_at
        evals = list(self.evals.values())
        if evals:
            notes.append("steps of evaluations count those of the warm-up, others do not")
        run = Imported(columns, steps, evals, notes=notes, lines=self.lines)
        if self.total is None and not evals:
            where = f"after step {steps.step[-1]}" if len(steps) else "before the first step"
            run.status, run.message = "failed", f"its log ends {where}"

        def complete(known):
            batch = tf_cnn_benchmarks.process_batch(known)
            if len(steps) and batch:
                tf_cnn_benchmarks.add_times(steps, self.rates, batch)
            elif len(steps):
                notes.append(
                    "no batch size is known (it is in benchmark.log): no times from rates of steps"
                )
            if started_at := known.get("started_at"):
                seconds = ((dates[step] - started_at).total_seconds() for step in steps.step)
                steps.more["t_s"] = array("d", seconds)
                for row in evals:
                    row["t_s"] = (self.eval_dates[row["step"]] - started_at).total_seconds()

        run.complete = complete
        return run
