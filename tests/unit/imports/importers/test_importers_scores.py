"""Importers of logs with losses and scores: Keras' CSVLogger, TensorBoard, MLPerf."""

import gzip
import math
import struct

import pytest

from dlbench.common import tfrecord
from dlbench.imports.log_file import LogError
from support.logs import event_files
from support.logs.event_files import event, event_file, scalar, tensor, text
from support.logs.reading_logs import notes, read

# Keras' CSVLogger

HEADER = "epoch,accuracy,loss,val_accuracy,val_loss\n"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_held_out_scores_of_keras_become_evaluations_with_epochs_from_1(log, separator):
    content = f"{HEADER}0,0.5,2.0,0.25,2.5\n1,0.75,1.0,0.5,1.5\n".replace(",", separator)
    (run,) = read("keras_csvlogger", log, content)
    assert run.evals == [
        {"split": "validation", "epoch": 1, "loss": 2.5, "top1": 0.25},
        {"split": "validation", "epoch": 2, "loss": 1.5, "top1": 0.5},
    ]
    assert run.columns["final_loss"] == 1.0
    assert run.columns["epochs"] == 2


def test_what_an_epoch_of_keras_has_not_is_absent_and_unknown_columns_are_said(log):
    content = f"{HEADER}0,0.5,2.0,NA,NA\n1,0.5,nan,NA,nan\n"
    (run,) = read("keras_csvlogger", log, content)
    assert [sorted(row) for row in run.evals] == [["epoch", "loss", "split"]]
    assert math.isnan(run.evals[0]["loss"]) and math.isnan(run.columns["final_loss"])
    content = "epoch,loss,lr,val_sparse_top_k_categorical_accuracy\n0,2.0,0.1,0.75\n"
    (run,) = read("keras_csvlogger", log, content)
    assert run.evals[0]["top5"] == 0.75
    assert "columns left out: lr" in notes(run)


def test_an_epoch_0_in_a_file_of_keras_begins_the_next_run(log):
    rows = "0,0.5,2.0,0.25,2.5\n1,0.75,1.0,0.5,1.5\n"
    first, second = read("keras_csvlogger", log, HEADER + rows + HEADER + rows.replace("1.0", "3"))
    assert (first.columns["final_loss"], second.columns["final_loss"]) == (1.0, 3.0)
    assert first.lines == (1, 4)
    assert "line 4 left out: the header again" in notes(first)


def test_epochs_of_keras_that_come_again_count_as_they_were_at_last(log):
    content = HEADER + "".join(
        f"{e},0.5,{loss},0.5,{loss}\n" for e, loss in [(0, 9), (1, 8), (2, 7), (1, 6), (2, 5)]
    )
    (run,) = read("keras_csvlogger", log, content)
    assert [row["loss"] for row in run.evals] == [9, 6, 5]
    assert run.columns["resumes"] == 1
    assert "line 5: resumed, 2 epochs before it do not count" in notes(run)
    # A last row without its newline may be cut short.
    (run,) = read("keras_csvlogger", log, f"{HEADER}0,0.5,2.0,0.25,2.5\n1,0.75,1.0,0.5,1")
    assert len(run.evals) == 1
    assert "line 3 left out: no newline at its end" in notes(run)


@pytest.mark.parametrize("row", ["1,0.5", "-1,0,0,0,0", "x,0,0,0,0", "1e99,0,0,0,0"])
def test_a_row_that_is_none_is_refused_with_its_line(log, row):
    with pytest.raises(LogError, match="line 3: expected 5 values"):
        read("keras_csvlogger", log, f"{HEADER}0,0.5,2.0,0.25,2.5\n{row}\n2,0.5,2.0,0.25,2.5\n")


# TensorBoard


def scalars(values):
    return [scalar(tag, value) for tag, value in values.items()]


def test_our_export_comes_back_as_what_was_exported(log):
    words = "| | |\n| --- | --- |\n| run | x |\n| status | ok |\n| model | lenet5 |\n"
    words += "| framework | tensorflow |\n| tensorflow | 2.18.1 |\n| xla | False |\n"
    words += "| batch_per_device | 64 |\n| nodes | 1 |\n| devices_per_node | 2 |\n"
    words += "| warmup_steps | 1 |\n| learning_rate | 0.01 |\n"
    first = {"train/loss": 2.5, "train/step_time_s": 0.5, "train/learning_rate": 0.25}
    held_out = {"validation/loss": 1.5, "validation/top1": 0.75, "validation/examples": 10}
    usage = {"memory_bytes": 1024, "gpu0/power_w": 300, "GPU-8932f937/power_w": 250}
    content = event_file(
        event(100, 0, text("run", words)),
        event(101, 1, *scalars(first)),
        event(101.5, 2, *scalars({"train/loss": 2.0, "train/step_time_s": 0.25})),
        event(101.5, 2, *scalars({f"usage/rank1/{name}": usage[name] for name in usage})),
        event(102, 2, *scalars(held_out)),
        event(102, 2, scalar("summary/images_per_second", 512)),
    )
    (run,) = read("tensorboard", log, content)
    assert list(run.steps.step) == [1, 2]
    assert list(run.steps.step_time_s) == [0.5, 0.25]
    assert list(run.steps.loss) == [2.5, 2.0]
    assert list(run.steps.warm_up) == [1, 0]
    assert run.steps.more["learning_rate"][0] == 0.25
    assert run.evals == [
        {"split": "validation", "step": 2, "t_s": 2.0, "loss": 1.5, "top1": 0.75, "examples": 10}
    ]
    assert run.samples == [
        {"t_s": 1.5, "rank": 1, "memory_bytes": 1024},
        {"t_s": 1.5, "rank": 1, "gpu": "0", "power_w": 300.0},
        {"t_s": 1.5, "rank": 1, "gpu": "GPU-8932f937", "power_w": 250.0},
    ]
    started = run.columns.pop("started_at")
    assert started.timestamp() == 100.0
    assert run.columns == {
        "model": "lenet5", "framework": "tensorflow", "framework_version": "2.18.1", "xla": False,
        "batch_per_device": 64, "nodes": 1, "devices_per_node": 2, "devices": 2,
        "global_batch": 128, "warmup_steps": 1, "learning_rate": 0.01, "images_per_second": 512.0,
    }  # fmt: skip
    # The batch of an export follows from rate and time.
    rates = scalars({"train/step_time_s": 0.125, "train/items_per_second": 512})
    (run,) = read("tensorboard", log, event_file(event(1.0, 1, *rates)))
    assert run.columns["global_batch"] == 64


def test_events_of_keras_are_put_together_by_step(log):
    content = event_file(
        event(1.0, 1, tensor("batch_loss", 2.0)),
        event(1.0, 1, tensor("batch_steps_per_second", 4.0)),
        event(2.0, 2, tensor("batch_loss", 1.5)),
        event(2.0, 2, tensor("batch_steps_per_second", 8.0)),
        event(3.0, 0, tensor("epoch_loss", 1.75)),
    )
    (run,) = read("tensorboard", log, content)
    assert list(run.steps.step_time_s) == [0.25, 0.125]
    assert list(run.steps.loss) == [2.0, 1.5]
    assert run.columns["final_loss"] == 1.75
    assert run.evals == []


@pytest.mark.parametrize("by", ["tag", "folder"])
def test_held_out_epochs_of_keras_are_known_by_their_tags_or_their_folder(tmp_path, by):
    folder = tmp_path / ("validation" if by == "folder" else "train")
    folder.mkdir()
    more = [event(1.0, 9, tensor("evaluation_loss_vs_iterations", 2.0))] if by == "tag" else []
    content = event_file(
        event(1.0, 0, tensor("epoch_loss", 2.0)),
        event(1.0, 0, tensor("epoch_sparse_categorical_accuracy", 0.5)),
        *more,
    )
    (run,) = read("tensorboard", folder / "events", content)
    assert run.evals == [{"split": "validation", "epoch": 1, "loss": 2.0, "top1": 0.5}]


def test_tf_cnn_benchmarks_events_have_losses_without_times(log):
    content = event_file(
        event(5.0, 100, scalar("total_loss", 8.0), scalar("learning_rate", 0.5)),
        event(9.0, 200, scalar("eval/Accuracy@1", 0.5), scalar("eval/Accuracy@5", 0.75)),
    )
    (run,) = read("tensorboard", log, content)
    assert list(run.steps.loss) == [8.0]
    assert math.isnan(run.steps.step_time_s[0])
    assert list(run.steps.window_steps) == [0]
    assert run.evals == [
        {"split": "validation", "step": 200, "t_s": 4.0, "top1": 0.5, "top5": 0.75}
    ]


def test_steps_that_come_again_count_as_they_were_at_last(log):
    losses = [(1, 9.0), (2, 8.0), (3, 7.0), (2, 6.0)]
    content = event_file(*(event(1.0, step, scalar("train/loss", x)) for step, x in losses))
    (run,) = read("tensorboard", log, content)
    assert list(run.steps.step) == [1, 2]
    assert list(run.steps.loss) == [9.0, 6.0]
    assert "resumed at step 2: 2 steps do not count" in notes(run)


def test_tags_that_no_column_has_are_said(log):
    content = event_file(
        event(1.0, 1, scalar("my/metric", 1.0), event_files.histogram("weights")),
        event(1.0, -5, scalar("train/loss", 1.0)),
        event(1.0, 1, scalar("train/learning_rate", 0.5)),
    )
    (run,) = read("tensorboard", log, content)
    assert "tags left out: my/metric, train/loss, weights" in notes(run)
    content = event_file(event(1.0, 1, scalar("Loss/train", 1.0), scalar("Acc\x1b", 1.0)))
    with pytest.raises(LogError, match=r"no known tag, but Acc\?, Loss/train; known are"):
        read("tensorboard", log, content)
    with pytest.raises(LogError, match="no event with a value"):
        read("tensorboard", log, event_file())


def test_a_last_record_that_is_cut_short_is_the_end_of_an_event_file(log):
    whole = event_file(*(event(1.0, step, scalar("train/loss", 1.0)) for step in (1, 2)))
    for cut in range(1, 40):
        (run,) = read("tensorboard", log, gzip.compress(whole[:-cut]) if cut % 2 else whole[:-cut])
        assert list(run.steps.step) == [1]
        assert "left out: cut short" in notes(run)


@pytest.mark.parametrize("payload", [b"\x09\x00", b"\x2a\x05\x0a\x7f", b"\x0b", b"\x80" * 20])
def test_a_record_that_is_no_event_or_damaged_is_refused_with_its_place(log, payload):
    content, place = bytearray(event_file() + tfrecord.record(payload)), len(event_file())
    with pytest.raises(LogError, match=f"record at byte {place}: no event"):
        read("tensorboard", log, bytes(content))
    content[place + 12] ^= 1
    with pytest.raises(LogError, match=f"record at byte {place}: the checksum of its content"):
        read("tensorboard", log, bytes(content))


@pytest.mark.parametrize(
    ("kind", "content"),
    [(2, struct.pack("<d", 0.5)), (19, struct.pack("<e", 0.5)), (3, struct.pack("<i", 1))],
)
def test_tensors_of_other_types_are_read_too(log, kind, content):
    element = event_files.varint(1 << 3) + event_files.varint(kind) + event_files.nested(4, content)
    value = event_files.nested(1, b"batch_loss") + event_files.nested(8, element)
    (run,) = read("tensorboard", log, event_file(event(1.0, 1, value)))
    assert run.steps.loss[0] == (1.0 if kind == 3 else 0.5)
