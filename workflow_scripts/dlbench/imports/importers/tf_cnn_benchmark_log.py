"""benchmark_run.log or benchmark.log of tf_cnn_benchmarks (--benchmark_log_dir): the settings.

- One line of JSON, written when the training begins: `run_date` is its start, UTC.
- `batch_size` is of all GPUs of the process that wrote it; under Horovod, of its one GPU; with
  parameter servers, of one worker, and the number of workers is not stated.
- `gpu_info.count` counts the visible GPUs; the list of devices has those that are used.
- `num_epochs` is computed from the number of batches. If that gives whole epochs, the user asked
  for epochs.
- tf_cnn_eval_log reads the log of an evaluation.

Source: tensorflow/models, official/utils/logs/logger.py; benchmark_cnn.py of tensorflow/benchmarks.
"""

import json
from collections.abc import Iterator

from dlbench.imports.importers import Imported, tf_cnn_benchmarks
from dlbench.imports.log_file import LogFile

FAMILY = "tf_cnn_benchmarks"


def recognise(log: LogFile) -> bool:
    return is_run_info(log) and not is_of_evaluation(log)


def is_run_info(log: LogFile) -> bool:
    """Whether this is a benchmark.log, of a training or an evaluation."""
    head = log.head
    return head[:1] == b"{" and b'"run_parameters"' in head and b'"run_date"' in head


def is_of_evaluation(log: LogFile) -> bool:
    """Whether this benchmark.log was written by an evaluation."""
    return b'"string_value": "evaluation"' in log.head


def read(log: LogFile) -> Iterator[Imported]:
    yield from (run for run, _ in runs(log))


def runs(log: LogFile) -> Iterator[tuple[Imported, dict[str, str]]]:
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
                run.columns["started_at"] = tf_cnn_benchmarks.utc_date(date)
            except (ValueError, AttributeError, OverflowError) as error:
                raise log.error(number, f"run_date is no date: {error}"[:300]) from error
        yield run, settings
    if is_empty:
        raise log.error(1, "empty")


def _columns(info, settings, notes):
    columns = tf_cnn_benchmarks.settings_columns(settings, notes)
    if tf_cnn_benchmarks.is_worker(settings):
        notes.append("settings of one worker: the devices and the batch of all are not in it")
    text = _within(info, "tensorflow_version", "version")
    if text and (version := tf_cnn_benchmarks.parse_version(text)):
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
