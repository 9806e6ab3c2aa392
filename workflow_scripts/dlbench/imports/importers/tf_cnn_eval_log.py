"""benchmark_run.log of an evaluation by tf_cnn_benchmarks, as KIT's runs have it in eval.log.

It says what was evaluated, with which batch and how many of them: the examples of the evaluation
whose scores are in metric.log. It was begun when the training had ended.
"""

from dlbench.imports.importers import Imported, _tf_cnn, tf_cnn_benchmark_log

FAMILY = _tf_cnn.FAMILY
# What an evaluation may do otherwise than the training before it.
OF_TRAINING = (
    "steps", "epochs", "global_batch", "batch_per_device", "devices", "nodes", "devices_per_node",
)  # fmt: skip


def recognise(log):
    return tf_cnn_benchmark_log.is_run_info(log) and tf_cnn_benchmark_log.is_of_evaluation(log)


def read(log):
    for number, info in tf_cnn_benchmark_log.lines(log):
        notes = []
        columns = tf_cnn_benchmark_log.run_columns(info, notes)
        batches = _tf_cnn.positive(info["words"].get("num_batches"))
        for name in OF_TRAINING:
            columns.pop(name, None)
        row = {"split": "validation"}
        batch = _tf_cnn.positive(info["words"].get("batch_size"))
        if batches and batch:
            row["examples"] = batches * batch
        date = tf_cnn_benchmark_log.started_at(log, number, info)
        if date:
            notes.append(f"evaluated from {date:%Y-%m-%d %H:%M:%S} UTC on")
        yield Imported(columns, evals=[row], notes=notes, lines=(number, number))
