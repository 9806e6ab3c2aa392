"""benchmark_run.log or benchmark.log of tf_cnn_benchmarks (--benchmark_log_dir): what is trained.

- One line of JSON, written when the training begins: `run_date` is its start, UTC.
- `batch_size` is of all GPUs of the process that wrote it, under Horovod of its one GPU; with
  parameter servers that of one worker, and how many workers there are is not said.
- `gpu_info.count` is how many GPUs are visible, not used; the list of devices is what is used.
- `num_epochs` is worked out from the number of batches; where that makes whole epochs, they were
  asked for.
- The log of an evaluation is tf_cnn_eval_log's.

Source: tensorflow/models, official/utils/logs/logger.py; benchmark_cnn.py of tensorflow/benchmarks.
"""

import json
from datetime import datetime, timezone

from dlbench.imports.importers import Imported, _tf_cnn
from dlbench.imports.log_file import BOM

FAMILY = _tf_cnn.FAMILY


def recognise(log):
    return is_run_info(log) and not is_of_evaluation(log)


def is_run_info(log):
    head = log.head.removeprefix(BOM)
    return head[:1] == b"{" and b'"run_parameters"' in head and b'"run_date"' in head


def is_of_evaluation(log):
    # In whatever order the program wrote the two.
    return b'"string_value": "evaluation"' in log.head or (
        b'{"string_value": "evaluation", "name": "mode"}' in log.head
    )


def read(log):
    for number, info in lines(log):
        notes = []
        columns = run_columns(info, notes)
        date = started_at(log, number, info)
        if date:
            columns["started_at"] = date
        yield Imported(columns, notes=notes, lines=(number, number))


def lines(log):
    """(number, what it says) of each line that is not empty.

    Raises:
        LogError: one is no object with run_parameters, or there is none.
    """
    found = False
    for number, line in log.lines():
        if not line.strip():
            continue
        found = True
        try:
            info = json.loads(line)
            words = {p["name"]: _value(p) for p in info["run_parameters"]}
        except (ValueError, TypeError, KeyError, StopIteration, RecursionError) as error:
            raise log.error(number, f"not what a benchmark.log has: {error!r}"[:300]) from error
        yield number, {**info, "words": words}
    if not found:
        raise log.error(1, "empty")


def run_columns(info, notes):
    """Columns of the runs table; what is unknown is appended to notes."""
    columns = _tf_cnn.columns(info["words"], notes)
    version = _within(info, "tensorflow_version", "version")
    if version and (found := _tf_cnn.version(version)):
        columns["framework_version"] = found
    gpu = _within(info, "machine_config", "gpu_info", "model")
    cpu = _within(info, "machine_config", "cpu_info", "cpu_info")
    model = gpu if columns.get("device_kind") == "gpu" else cpu
    if model:
        columns["device_model"] = model
    return columns


def started_at(log, number, info):
    text = info.get("run_date")
    if text is None:
        return None
    try:
        date = datetime.fromisoformat(text.replace("Z", "+00:00"))
        # Python's dates without a zone would be local ones.
        return (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, AttributeError, OverflowError) as error:
        raise log.error(number, f"run_date is no date: {error}"[:300]) from error


def _value(parameter):
    return str(next(value for key, value in parameter.items() if key != "name"))


def _within(info, *keys):
    for key in keys:
        info = info.get(key) if isinstance(info, dict) else None
    return info if isinstance(info, str) and info else None
