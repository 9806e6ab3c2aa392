"""benchmark_run.log of an evaluation by tf_cnn_benchmarks, which KIT's runs keep as eval.log.

It states the batch and the number of batches, and so the examples of the evaluation whose scores
are in metric.log. It is written after the training.
"""

from collections.abc import Iterator
from typing import Any

from dlbench.imports.importers import Imported
from dlbench.imports.importers.tf_cnn import _tf_cnn, tf_cnn_benchmark_log
from dlbench.imports.log_file import LogFile

FAMILY = _tf_cnn.FAMILY
# Columns in which an evaluation may differ from the training before it.
OF_TRAINING = (
    *("steps", "epochs", "global_batch", "batch_per_device"),
    *("devices", "nodes", "devices_per_node"),
)


def recognise(log: LogFile) -> bool:
    return tf_cnn_benchmark_log.is_run_info(log) and tf_cnn_benchmark_log.is_of_evaluation(log)


def read(log: LogFile) -> Iterator[Imported]:
    for number, info in tf_cnn_benchmark_log.lines(log):
        notes: list[str] = []
        columns = tf_cnn_benchmark_log.run_columns(info, notes)
        batches = _tf_cnn.positive(info["settings"].get("num_batches"))
        for name in OF_TRAINING:
            columns.pop(name, None)
        row: dict[str, Any] = {"split": "validation"}
        batch = _tf_cnn.positive(info["settings"].get("batch_size"))
        if batches and batch:
            row["examples"] = batches * batch
        date = tf_cnn_benchmark_log.started_at(log, number, info)
        if date:
            notes.append(f"evaluated from {date:%Y-%m-%d %H:%M:%S} UTC on")
        yield Imported(columns, evals=[row], notes=notes, lines=(number, number))
