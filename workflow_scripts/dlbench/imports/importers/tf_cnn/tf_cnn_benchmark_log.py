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
from datetime import datetime
from typing import Any

from dlbench.imports.importers import Imported
from dlbench.imports.importers.tf_cnn import _tf_cnn
from dlbench.imports.log_file import LogFile

FAMILY = _tf_cnn.FAMILY


def recognise(log: LogFile) -> bool:
    return is_run_info(log) and not is_of_evaluation(log)


def is_run_info(log: LogFile) -> bool:
    """Whether this is a benchmark.log, of a training or an evaluation."""
    head = log.head
    return head[:1] == b"{" and b'"run_parameters"' in head and b'"run_date"' in head


def is_of_evaluation(log: LogFile) -> bool:
    """Whether this benchmark.log was written by an evaluation."""
    # The order of the two keys differs between versions.
    return b'"string_value": "evaluation"' in log.head or (
        b'{"string_value": "evaluation", "name": "mode"}' in log.head
    )


def read(log: LogFile) -> Iterator[Imported]:
    for number, info in lines(log):
        notes: list[str] = []
        columns = run_columns(info, notes)
        date = started_at(log, number, info)
        if date:
            columns["started_at"] = date
        yield Imported(columns, notes=notes, lines=(number, number))


def lines(log: LogFile) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number, run info with its `settings`) of each line that is not empty.

    Raises:
        LogError: a line is no object with run_parameters, or all are empty.
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
        yield number, {**info, "settings": settings}
    if is_empty:
        raise log.error(1, "empty")


def run_columns(info: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Columns of the runs table; notes on unknown values are appended to `notes`."""
    columns = _tf_cnn.columns(info["settings"], notes)
    if _tf_cnn.is_worker(info["settings"]):
        notes.append("settings of one worker: the devices and the batch of all are not in it")
    text = _within(info, "tensorflow_version", "version")
    if text and (version := _tf_cnn.version(text)):
        columns["framework_version"] = version
    gpu = _within(info, "machine_config", "gpu_info", "model")
    cpu = _within(info, "machine_config", "cpu_info", "cpu_info")
    model = gpu if columns.get("device_kind") == "gpu" else cpu
    if model:
        columns["device_model"] = model
    return columns


def started_at(log: LogFile, number: int, info: dict[str, Any]) -> datetime | None:
    """The start of the training or evaluation; None if the log lacks it."""
    text = info.get("run_date")
    if text is None:
        return None
    try:
        return _tf_cnn.utc_date(text)
    except (ValueError, AttributeError, OverflowError) as error:
        raise log.error(number, f"run_date is no date: {error}"[:300]) from error


def _value(parameter):
    return str(next(value for key, value in parameter.items() if key != "name"))


def _within(info, *keys):
    for key in keys:
        info = info.get(key) if isinstance(info, dict) else None
    return info if isinstance(info, str) and info else None
