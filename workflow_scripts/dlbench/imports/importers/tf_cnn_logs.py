"""What tf_cnn_benchmarks writes into the folder --benchmark_log_dir, as JSON lines.

metric.log:
- `current_examples_per_sec` is the printed rate with all digits, a cumulative mean of one process
  (tf_cnn_benchmarks.py). It is undone here if the batch is known, from benchmark.log or the user.
  `loss` in the extras is that of the step alone.
- `average_examples_per_sec` is `total images/sec`, of all workers, by the clock: the throughput.
- `eval_*` are of an evaluation after the training. Their global_step counts the warm-up, which
  that of the training does not.
- Dates are UTC, of the writing of the line. The run ends with its last line of training.
- The file is appended to: another run begins where step numbers start again.

benchmark_run.log or benchmark.log, the settings:
- One line of JSON, written when the training begins: `run_date` is its start, UTC.
- `batch_size` is of all GPUs of the process that wrote it; under Horovod, of its one GPU; with
  parameter servers, of one worker, and the number of workers is not stated.
- `gpu_info.count` counts the visible GPUs; the list of devices has those that are used.
- `num_epochs` is computed from the number of batches. If that gives whole epochs, the user asked
  for epochs.

benchmark_run.log of an evaluation, which KIT's runs keep as eval.log, written after the training:
- It states the batch and the number of batches, and so the examples of the evaluation whose scores
  are in metric.log.

Source: tensorflow/models, official/utils/logs/logger.py; benchmark_cnn.py of tensorflow/benchmarks.
"""

import json
import math
import re
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

from dlbench.imports import log_lines
from dlbench.imports.importers import Imported, Steps
from dlbench.imports.importers import tf_cnn_benchmarks as printed
from dlbench.imports.log_file import LogFile

VARIANTS = {
    "tf_cnn_metric_log": {"ABOUT": "metric.log of tf_cnn_benchmarks: rates with all digits"},
    "tf_cnn_benchmark_log": {"ABOUT": "benchmark.log of tf_cnn_benchmarks: the settings"},
    "tf_cnn_eval_log": {"ABOUT": "benchmark.log of an evaluation by tf_cnn_benchmarks: examples"},
}
FAMILY = "tf_cnn_benchmarks"
RATE, TOTAL = "current_examples_per_sec", "average_examples_per_sec"
SCORES = {"eval_top_1_accuracy": "top1", "eval_top_5_accuracy": "top5"}
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
NAMES = re.compile(rb'"name": ?"(?:current_|average_|eval_average_)examples_per_sec"')
# Columns in which an evaluation may differ from the training before it.
OF_TRAINING = (
    *("steps", "epochs", "global_batch", "batch_per_device"),
    *("devices", "nodes", "devices_per_node", "started_at"),
)


def recognise(log: LogFile, constants: Mapping[str, Any]) -> bool:
    head, name = log.head, constants["NAME"]
    first = head.partition(b"\n")[0]
    if head[:1] != b"{":
        return False
    if name == "tf_cnn_metric_log":
        return b'"global_step"' in first and bool(NAMES.search(first))
    is_of_evaluation = b'"string_value": "evaluation"' in head
    is_of_settings = b'"run_parameters"' in head and b'"run_date"' in head
    return is_of_settings and is_of_evaluation == (name == "tf_cnn_eval_log")


def read(log: LogFile, constants: Mapping[str, Any]) -> Iterator[Imported]:
    name = constants["NAME"]
    if name == "tf_cnn_metric_log":
        yield from _metrics(log)
        return
    for run, settings in _settings(log):
        if name == "tf_cnn_eval_log":
            _add_evaluation(run, settings)
        yield run


def _metrics(log):
    """The runs in a metric.log."""
    runs = []
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
    return [run.imported(log) for run in runs]


def _event(log, number, line):
    try:
        event = json.loads(line)
        extras = {extra["name"]: extra["value"] for extra in event.get("extras") or ()}
        step = event["global_step"]
        date = printed.utc_date(event["timestamp"])
        if not 0 <= step < 2**62 or int(step) != step:
            raise ValueError(f"step {step}")
        return str(event["name"]), float(event["value"]), int(step), date, extras
    except MALFORMED as error:
        raise log.error(number, f"not an event of a metric.log: {error!r}"[:300]) from error


class _Run:
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
            self.steps.add(step, math.nan, log_lines.loss(extras.get("loss")), 0)
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
            ranks = printed.merge_ranks(steps, self.rates)
            if not ranks:
                raise log.error(self.lines[0], "steps go back from here on: of which process?")
            notes.append(f"{ranks} processes wrote into this log: the slowest counts")
        printed.without_times(steps)
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
            batch = printed.process_batch(known)
            if len(steps) and batch:
                printed.add_times(steps, self.rates, batch)
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


def _add_evaluation(run, settings):
    """Leave to an evaluation what is its own: its examples."""
    if date := run.columns.get("started_at"):
        run.notes.append(f"evaluated from {date:%Y-%m-%d %H:%M:%S} UTC on")
    for name in OF_TRAINING:
        run.columns.pop(name, None)
    row: dict[str, Any] = {"split": "validation"}
    batches, batch = (log_lines.count(settings.get(n)) for n in ("num_batches", "batch_size"))
    if batches and batch:
        row["examples"] = batches * batch
    run.evals.append(row)


def _settings(log):
    """Yield (run, settings by name) of each line that is not empty.

    A LogError if a line is no object with run_parameters, or all are empty.
    """
    is_empty = True
    for number, line in log.lines():
        if not line.strip():
            continue
        is_empty = False
        try:
            info = json.loads(line)
            settings = {p["name"]: _value(p) for p in info["run_parameters"]}
        except (ValueError, TypeError, KeyError, StopIteration, RecursionError) as error:
            raise log.error(number, f"not what a benchmark.log has: {error!r}"[:300]) from error
        run = Imported({}, lines=(number, number))
        run.columns = _columns(info, settings, run.notes)
        if (date := info.get("run_date")) is not None:
            try:
                run.columns["started_at"] = printed.utc_date(date)
            except (ValueError, AttributeError, OverflowError) as error:
                raise log.error(number, f"run_date is no date: {error}"[:300]) from error
        yield run, settings
    if is_empty:
        raise log.error(1, "empty")


def _columns(info, settings, notes):
    columns = printed.settings_columns(settings, notes)
    if printed.is_worker(settings):
        notes.append("settings of one worker: the devices and the batch of all are not in it")
    text = _within(info, "tensorflow_version", "version")
    if text and (version := printed.parse_version(text)):
        columns["framework_version"] = version
    gpu = _within(info, "machine_config", "gpu_info", "model")
    cpu = _within(info, "machine_config", "cpu_info", "cpu_info")
    if model := gpu if columns.get("device_kind") == "gpu" else cpu:
        columns["device_model"] = model
    return columns


def _value(parameter):
    return str(next(value for key, value in parameter.items() if key != "name"))


def _within(info, *keys):
    for key in keys:
        info = info.get(key) if isinstance(info, dict) else None
    return info if isinstance(info, str) and info else None
