"""Importers of PyTorch's imagenet example, Hugging Face's Trainer, Lightning's CSVLogger."""

import math

import numpy as np
import pytest

from dlbench.imports import import_logs
from dlbench.imports.log_file import LogError
from support.logs.reading_logs import notes, read
from support.logs.trainer_samples import hf_state, imagenet_line

# PyTorch's imagenet example


def epoch(number, *lines, batches=30):
    return "".join(f"{imagenet_line(number, n, batches, t, m)}\n" for n, t, m in lines)


def test_means_since_an_epoch_began_become_windows_of_batches(log):
    # 5 s for the first batch, 10 x 0.5 s, then 10 x 1 s.
    content = epoch(0, (1, 5, 5), (11, 0.5, 10 / 11), (21, 1, 20 / 21))
    (run,) = read("pytorch_imagenet", log, content + " * Acc@1 70.500 Acc@5 90.250\n")
    assert list(run.steps.step) == [1, 11, 21]
    assert list(run.steps.step_time_s) == pytest.approx([5, 0.5, 1], abs=0.001)
    assert list(run.steps.window_steps) == [1, 10, 10]
    assert list(run.steps.warm_up) == [1, 0, 0]
    assert run.evals == [{"split": "validation", "epoch": 1, "top1": 0.705, "top5": 0.9025}]
    assert run.status == "ok"


def cut(first, *times, batches=500):
    """Lines of every batch from the fifth on, numbered from `first`."""
    times = [9.0, *times]
    lines = ((n - 1 + first, times[n - 1], sum(times[:n]) / n) for n in range(5, len(times) + 1))
    return epoch(0, *lines, batches=batches)


@pytest.mark.parametrize("first", [0, 1])
def test_the_means_of_a_log_that_was_cut_show_where_counting_began(log, first):
    (run,) = read("pytorch_imagenet", log, cut(first, *[0.2] * 10, 30, 0.2, 0.2, 4, 0.2))
    assert list(run.steps.step) == list(range(5, 17))
    took = np.multiply(run.steps.step_time_s, run.steps.window_steps)
    assert np.nansum(took) == pytest.approx(9 + 10 * 0.2 + 30 + 3 * 0.2 + 4, abs=0.02)
    stall = [time for time, steps in zip(took, run.steps.window_steps, strict=True) if time > 29]
    assert stall == [pytest.approx(30.4, abs=0.02)]
    began = "the log begins at batch 5 of its epoch: the warm-up is in the first window"
    assert began in notes(run) and "unknown" not in notes(run)
    assert not any(run.steps.warm_up)


@pytest.mark.parametrize(
    ("numbers", "steps", "known"),
    [((0, 10), [1, 11], True), ((11, 500), [11, 500], True), ((10, 20, 30), [10, 20, 30], False)],
)
def test_a_batch_0_or_the_last_one_says_where_counting_began(log, numbers, steps, known):
    content = epoch(0, *((n, 0.2, 0.2) for n in numbers), batches=500)
    (run,) = read("pytorch_imagenet", log, content)
    assert list(run.steps.step) == steps
    unknown = "whether batches are counted from 0 or from 1 is unknown"  # the means fit both ways
    assert (unknown in notes(run)) is not known


def test_windows_that_the_last_digit_leaves_in_doubt_are_joined(log):
    # At batch 2000 a mean of 0.1 s is known to within 1 s, ten batches take as long.
    lines = [(n, 0.1, 0.1) for n in range(1, 2002, 10)]
    (run,) = read("pytorch_imagenet", log, epoch(0, *lines, batches=2001))
    ends = [n for n, w in zip(run.steps.step, run.steps.window_steps, strict=True) if w]
    assert min(b - a for a, b in zip(ends[-3:-1], ends[-2:], strict=True)) > 150
    assert sum(run.steps.window_steps) == 2001
    assert sum(t * w for t, w in zip(run.steps.step_time_s, run.steps.window_steps, strict=True)
               if w) == pytest.approx(200.1)  # fmt: skip


def test_batches_of_old_versions_count_from_zero(log):
    # As NNCF's tutorial prints them; and the steps of the second epoch go on.
    old = "Epoch: [{}][{}/3]\tTime {} ({})\tData 1.0 (1.0)\tLoss 5.6 (5.7)\tPrec@1 0.0 (0.5)\n"
    rows = [(0, 0, 9, 9), (0, 1, 1, 5), (0, 2, 1, 11 / 3), (1, 0, 3, 3), (1, 2, 1, 5 / 3)]
    content = "".join(old.format(e, n, t, round(m, 3)) for e, n, t, m in rows)
    (run,) = read("pytorch_imagenet", log, content + " * Prec@1 10.000 Prec@5 20.000\n")
    assert list(run.steps.step) == [1, 2, 3, 4, 6]
    assert list(run.steps.window_steps) == [1, 1, 1, 1, 2]
    assert run.evals[0]["epoch"] == 2


def test_of_lines_of_several_processes_the_slower_one_counts(log):
    content = epoch(0, (1, 5, 5), (1, 6, 6), (11, 1, 1.4), (11, 1, 1.5), batches=15)
    (run,) = read("pytorch_imagenet", log, content)
    assert list(run.steps.step) == [1, 11]
    # 11 x 1.5 s less 6 s, over ten batches.
    assert list(run.steps.step_time_s) == pytest.approx([6, 1.05])
    assert run.status == "ok"


def test_an_epoch_before_the_last_one_begins_another_run(log):
    later = epoch(1, (1, 5, 5), (6, 1, 1.7), (11, 1, 1.4))
    part = epoch(0, (1, 5, 5), (11, 1, 1)) + later
    first, _ = read("pytorch_imagenet", log, part + part)
    assert (first.status, first.message) == ("failed", "the log ends at batch 11 of 30 of epoch 2")
    # One that begins later was resumed, or printed at the same time.
    with pytest.raises(LogError, match=r"line 6: a step after a later one: two trainings"):
        read("pytorch_imagenet", log, part + later)
    loaded = "=> loaded checkpoint 'checkpoint.pth.tar' (epoch 1)\n"
    assert len(read("pytorch_imagenet", log, part + loaded + later + loaded)) == 2


def test_a_line_of_a_derived_program_is_read(log):
    # yjh0410/pytorch-imagenet#1, which has further columns.
    (run,) = read(
        "pytorch_imagenet",
        log,
        "Epoch: [0][  400/80073]\tTime  0.315 ( 0.372)\tData  0.002 ( 0.073)\tLoss 6.9802e+00 "
        "(7.0827e+00)\tAcc@1   0.00 (  0.08)\tAcc@5   6.25 (  0.55)\tlr 0.000000 (0.000002)\n",
    )
    assert list(run.steps.step) == [400]
    assert list(run.steps.step_time_s) == [0.372]
    assert list(run.steps.loss) == [6.9802]
    assert "waiting for data took 0.073 s of a batch" in notes(run)


# Hugging Face's Trainer

END = {"step": 100, "train_runtime": 60.0, "train_samples_per_second": 160.0, "train_loss": 1.4}
# Of yuanhuanghuang/quality, baselines/lrqa: a loss and an evaluation of step 50.
LRQA = [
    {"epoch": 0.32, "learning_rate": 7.911392405063292e-06, "loss": 1.387, "step": 50},
    {"epoch": 0.32, "step": 50, "eval_accuracy": 0.25503355264663696}
    | {"eval_loss": 1.3863019943237305, "eval_runtime": 92.0138}
    | {"eval_samples_per_second": 22.671, "eval_steps_per_second": 1.424},
]


def test_evaluations_are_taken_off_the_time_of_hugging_faces_training(log):
    entries = [{**LRQA[0]}, {**LRQA[1], "eval_runtime": 20.0}, END]
    (run,) = read("hf_trainer", log, hf_state(entries, 100, 100))
    # 160 x 60 items in 40 s.
    assert run.columns["images_per_second"] == 240
    assert run.columns["step_time_mean_s"] == 0.4
    assert run.columns["duration_s"] == 60
    assert run.columns["epochs"] == 1
    assert "60 s, less 20 s of evaluations" in notes(run)


def test_evaluations_of_several_sets_have_their_names_and_are_taken_off_too(log):
    matched = {"step": 50, "epoch": 0.5, "eval_matched_loss": 1.5, "eval_matched_accuracy": 0.5}
    entries = [
        matched | {"eval_matched_runtime": 5.0, "eval_matched_samples_per_second": 10.0},
        {"step": 50, "epoch": 0.5, "eval_other_set_loss": 1.7, "eval_other_set_runtime": 7.0},
        {"step": 100, "epoch": 1.0, "dev_loss": 1.6, "dev_f1": 0.3, "dev_runtime": 8.0},
        END,
        matched | {"step": 100, "eval_matched_runtime": 99.0},  # after the training
    ]
    (run,) = read("hf_trainer", log, hf_state(entries, 100, 100))
    assert run.columns["step_time_mean_s"] == 0.4
    assert run.columns["images_per_second"] == 240
    assert "60 s, less 20 s of evaluations" in notes(run)
    assert [(e["split"], e["step"], e["loss"], e.get("top1")) for e in run.evals] == [
        ("matched", 50, 1.5, 0.5),
        ("other_set", 50, 1.7, None),
        ("dev", 100, 1.6, None),
        ("matched", 100, 1.5, 0.5),
    ]
    assert "left out: dev_f1" in notes(run)


def test_the_scores_of_a_run_are_those_of_the_set_that_has_no_other_name(log):
    plain = {"step": 100, "eval_loss": 1.5, "eval_accuracy": 0.5, "eval_runtime": 1.0}
    hard = {name.replace("eval", "eval_hard"): value / 2 for name, value in plain.items()}
    log.write_text(hf_state([plain, hard | {"step": 100}, END], 100, 100))
    assert import_logs.import_paths([log]).rows[0]["top1"] == 0.5
    # Of several sets with names of their own none is that of the run.
    first = {name.replace("eval", "eval_easy"): value for name, value in plain.items()}
    log.write_text(hf_state([first | {"step": 0, "epoch": 0}, hard, END], 100, 100))
    (found,) = import_logs.import_paths([log]).rows
    assert "top1" not in found
    (run,) = read("hf_trainer", log, log.read_text())
    assert [(e["split"], e.get("epoch"), e["top1"]) for e in run.evals] == [
        ("easy", None, 0.5),
        ("hard", None, 0.25),
    ]


def test_of_a_training_that_was_stopped_early_the_items_of_its_steps_count(log):
    # 160 items/s x 60 s are those of 400 steps; 100 of them were done, a quarter.
    (run,) = read("hf_trainer", log, hf_state([END], 100, 400))
    assert run.columns["images_per_second"] == 40
    assert "stopped at step 100 of 400" in notes(run)


def test_losses_and_scores_of_hugging_faces_history_are_rows(log):
    (run,) = read("hf_trainer", log, hf_state(LRQA, 50, 3140))
    assert list(run.steps.step) == [50]
    assert list(run.steps.window_steps) == [0]
    scores = {"loss": 1.3863019943237305, "top1": 0.25503355264663696}
    assert run.evals == [{"split": "validation", "step": 50, "epoch": 1} | scores]
    assert (run.status, run.message) == ("failed", "the state of a checkpoint at step 50 of 3140")
    entries = [{"step": 5, "epoch": 0.5, "eval_f1": 0.5, "eval_accuracy": 55.0}, END]
    (run,) = read("hf_trainer", log, hf_state(entries, 100, 100))
    assert run.evals == [] and "left out: eval_f1" in notes(run)  # no share, and no accuracy


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (hf_state(LRQA, 50, 3140)[:300], "was the file cut short"),
        (hf_state(LRQA, 50, 3140)[:-20], "was the file cut short"),
        (hf_state([], 0, 3140), "training had not begun"),
    ],
)
def test_a_trainer_state_that_was_cut_or_has_no_training_is_refused(log, content, message):
    with pytest.raises(LogError, match=message):
        read("hf_trainer", log, content)


# Lightning's CSVLogger


def test_rows_of_training_and_of_validation_are_apart(log):
    # Rows as CSVLogger writes them: what a row has not is empty, in whatever order the columns are.
    content = (
        "train_loss_epoch,val_loss,epoch,step,train_loss_step,lr-SGD,val_acc\r\n"
        ",,0,49,2.25,0.1,\r\n,2.5,0,99,,,0.25\r\n2.125,,0,99,,,\r\n,,1,149,1.5,0.1,\r\n"
    )
    (run,) = read("lightning_csv", log, content)
    assert list(run.steps.step) == [50, 150]
    assert list(run.steps.loss) == [2.25, 1.5]
    assert run.evals == [
        {"split": "validation", "epoch": 1, "step": 100, "loss": 2.5, "top1": 0.25}
    ]
    assert run.columns["epochs"] == 2
    assert "the file has no times" in notes(run)
    assert "columns left out: lr-SGD, train_loss_epoch" in notes(run)


def test_times_of_the_throughput_monitor_become_windows(log):
    content = (
        "epoch,step,train/batches,train/samples,train/time,train_loss\n"
        "0,9,10,320,20.0,2.0\n0,19,20,640,25.0,1.5\n0,19,,,,1.25\n1,29,30,960,30.0,1.0\n"
    )
    (run,) = read("lightning_csv", log, content)
    assert list(run.steps.step_time_s) == [2.0, 0.5, 0.5]
    assert list(run.steps.window_steps) == [10, 10, 10]
    assert list(run.steps.warm_up) == [1, 0, 0]
    assert list(run.steps.loss) == [2.0, 1.25, 1.0]
    (found,) = import_logs.import_paths([log], {"devices": 2}).rows
    assert (found["batch_per_device"], found["images_per_second"]) == (32, 128)


def test_times_that_litgpt_writes_become_windows(log):
    # Of litGPT 0.5.13, the columns of rates left out.
    content = (
        "batches,epoch,iter,iter_time,loss,samples,step,time,val_loss,val_ppl\n"
        "1,0,1,0.862,5.738,4,0,0.875,,\n2,0,2,0.649,5.758,8,1,1.5,,\n,,,,,,1,,5.5,244.7\n"
    )
    (run,) = read("lightning_csv", log, content)
    assert list(run.steps.step) == [1, 2]
    assert list(run.steps.step_time_s) == [0.875, 0.625]
    assert list(run.steps.warm_up) == [1, 0]
    assert run.columns["batch_per_device"] == 4
    assert run.evals == [{"split": "validation", "step": 2, "loss": 5.5}]
    assert "columns left out: iter, iter_time, val_ppl" in notes(run)


def test_a_row_of_training_before_the_last_one_begins_another_run(log):
    one, two = read("lightning_csv", log, "epoch,step,loss\n0,9,2.0\n0,19,nan\n0,9,2.0\n")
    assert (one.lines, two.lines) == ((1, 3), (4, 4))
    assert math.isnan(one.steps.loss[1])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("0,9,2.0\n0,19\n0,29,1.0\n", "line 3: expected 3 values, found '0,19'"),
        ("", "no loss, no score and no time"),
    ],
)
def test_a_csv_file_without_whole_rows_is_refused(log, rows, message):
    with pytest.raises(LogError, match=message):
        read("lightning_csv", log, f"epoch,step,loss\n{rows}")


def test_a_csv_file_of_another_kind_than_asked_for_is_refused_by_its_kind(log):
    log.write_text("epoch,step,loss\n0,9,2.0\n")
    message = "line 1: expected a header with epoch and a loss, found one of lightning_csv"
    with pytest.raises(LogError, match=message):
        import_logs.import_paths([log], kind="keras_csvlogger")
    log.write_text("epoch,loss\n0,2.0\n")
    with pytest.raises(LogError, match="header with step and a loss, found one of keras_csvlogger"):
        import_logs.import_paths([log], kind="lightning_csv")
