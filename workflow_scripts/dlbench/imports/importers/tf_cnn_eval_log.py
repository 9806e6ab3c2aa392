"""benchmark_run.log of an evaluation by tf_cnn_benchmarks, which KIT's runs keep as eval.log.

It states the batch and the number of batches, and so the examples of the evaluation whose scores
are in metric.log. It is written after the training.
"""

from collections.abc import Iterator
from typing import Any

from dlbench.imports.importers import Imported, tf_cnn_benchmark_log
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import count

FAMILY = "tf_cnn_benchmarks"
# Columns in which an evaluation may differ from the training before it.
OF_TRAINING = (
    *("steps", "epochs", "global_batch", "batch_per_device"),
    *("devices", "nodes", "devices_per_node", "started_at"),
)


def recognise(log: LogFile) -> bool:
    return tf_cnn_benchmark_log.is_run_info(log) and tf_cnn_benchmark_log.is_of_evaluation(log)


def read(log: LogFile) -> Iterator[Imported]:
    for run, settings in tf_cnn_benchmark_log.runs(log):
        if date := run.columns.get("started_at"):
            run.notes.append(f"evaluated from {date:%Y-%m-%d %H:%M:%S} UTC on")
        for name in OF_TRAINING:
            run.columns.pop(name, None)
        row: dict[str, Any] = {"split": "validation"}
        batches, batch = count(settings.get("num_batches")), count(settings.get("batch_size"))
        if batches and batch:
            row["examples"] = batches * batch
        run.evals.append(row)
        yield run
