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
    return "".join(f"{imagenet_line(number, *(n, batches, t, m))}\n" for n, t, m in lines)


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
    times, lines = [9.0, *times], []
    for done in range(5, len(times) + 1):
        mean = sum(times[:done]) / done
        lines.append(imagenet_line(0, done - 1 + first, batches, times[done - 1], mean))
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("first", [0, 1])
def test_the_means_of_a_log_that_was_cut_show_where_counting_began(log, first):
    (run,) = read("pytorch_imagenet", log, cut(first, *[0.2] * 10, 30, 0.2, 0.2, 4, 0.2))
    assert list(run.steps.step) == list(range(5, 17))
    took = np.multiply(run.steps.step_time_s, run.steps.window_steps)
    assert np.nansum(took) == pytest.approx(9 + 10 * 0.2 + 30 + 3 * 0.2 + 4, abs=0.02)
    stall = [time for time, steps in zip(took, run.steps.window_steps, strict=True) if time > 29]
    assert stall == [pytest.approx(30.4, abs=0.02)]
    assert "the log begins at batch 5 of its epoch: the warm-up is in the first window" in notes(
        run
    )
    assert "unknown" not in notes(run)
    assert not any(run.steps.warm_up)


def test_where_the_means_fit_both_ways_to_count_that_is_noted(log):
    lines = [imagenet_line(0, n, 500, 0.2, 0.2) for n in (10, 20, 30)]
    (run,) = read("pytorch_imagenet", log, "".join(f"{line}\n" for line in lines))
    assert list(run.steps.step) == [10, 20, 30]
    assert "whether batches are counted from 0 or from 1 is unknown" in notes(run)


@pytest.mark.parametrize(("numbers", "steps"), [((0, 10), [1, 11]), ((11, 500), [11, 500])])
def test_a_batch_0_or_the_last_one_says_where_counting_began(log, numbers, steps):
    lines = [imagenet_line(0, n, 500, 0.2, 0.2) for n in numbers]
    (run,) = read("pytorch_imagenet", log, "".join(f"{line}\n" for line in lines))
    assert list(run.steps.step) == steps
    assert "unknown" not in notes(run)


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
    rows = [
        (0, 0, 9.0, 9.0),
        (0, 1, 1.0, 5.0),
        (0, 2, 1.0, 11 / 3),
        (1, 0, 3.0, 3.0),
        (1, 2, 1, 5 / 3),
    ]
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


def test_a_log_that_ends_within_an_epoch_is_a_failed_run(log):
    (run,) = read("pytorch_imagenet", log, epoch(0, (1, 5, 5), (11, 1, 1.4)))
    assert (run.status, run.message) == ("failed", "the log ends at batch 11 of 30 of epoch 1")


def test_an_epoch_before_the_last_one_begins_another_run(log):
    part = epoch(0, (1, 5, 5), (11, 1, 1)) + epoch(1, (1, 5, 5), (11, 1, 1))
    assert len(read("pytorch_imagenet", log, part + part)) == 2


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
    {
        "epoch": 0.32,
        "eval_accuracy": 0.25503355264663696,
        "eval_loss": 1.3863019943237305,
        "eval_runtime": 92.0138,
        "eval_samples_per_second": 22.671,
        "eval_steps_per_second": 1.424,
        "step": 50,
    },
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
    entries = [
        {"step": 100, "eval_loss": 1.5, "eval_accuracy": 0.5, "eval_runtime": 1.0},
        {"step": 100, "eval_hard_loss": 2.5, "eval_hard_accuracy": 0.1, "eval_hard_runtime": 1.0},
        END,
    ]
    log.write_text(hf_state(entries, 100, 100))
    (row,) = import_logs.import_paths([log]).rows
    assert row["top1"] == 0.5


def test_of_a_training_that_was_stopped_early_the_items_of_its_steps_count(log):
    # 160 items/s x 60 s are those of 400 steps; 100 of them were done, a quarter.
    (run,) = read("hf_trainer", log, hf_state([END], 100, 400))
    assert run.columns["images_per_second"] == 40
    assert "stopped at step 100 of 400" in notes(run)


def test_losses_and_scores_of_hugging_faces_history_are_rows(log):
    (run,) = read("hf_trainer", log, hf_state(LRQA, 50, 3140))
    assert list(run.steps.step) == [50]
    assert list(run.steps.window_steps) == [0]
    assert run.evals == [
        {
            "split": "validation",
            "step": 50,
            "epoch": 1,
            "loss": 1.3863019943237305,
            "top1": 0.25503355264663696,
        }
    ]
    assert (run.status, run.message) == ("failed", "the state of a checkpoint at step 50 of 3140")


def test_scores_that_are_no_accuracy_are_named(log):
    entries = [{"step": 5, "epoch": 0.5, "eval_f1": 0.5, "eval_accuracy": 55.0}, END]
    (run,) = read("hf_trainer", log, hf_state(entries, 100, 100))
    assert run.evals == []
    assert "left out: eval_f1" in notes(run)


@pytest.mark.parametrize("cut", [300, -20])
def test_a_trainer_state_that_was_cut_is_refused_and_says_so(log, cut):
    with pytest.raises(LogError, match="was the file cut short"):
        read("hf_trainer", log, hf_state(LRQA, 50, 3140)[:cut])


def test_a_trainer_state_of_an_untrained_model_is_refused(log):
    with pytest.raises(LogError, match="training had not begun"):
        read("hf_trainer", log, hf_state([], 0, 3140))


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
    content = "epoch,step,loss\n0,9,2.0\n0,19,1.5\n0,9,2.0\n"
    one, two = read("lightning_csv", log, content)
    assert (one.lines, two.lines) == ((1, 3), (4, 4))


def test_a_row_with_other_cells_is_refused_with_its_line(log):
    with pytest.raises(LogError, match="line 3: expected 3 values, found '0,19'"):
        read("lightning_csv", log, "epoch,step,loss\n0,9,2.0\n0,19\n0,29,1.0\n")


def test_a_loss_that_is_no_number_any_more_is_kept_as_such(log):
    (run,) = read("lightning_csv", log, "epoch,step,loss\n0,9,nan\n")
    assert math.isnan(run.steps.loss[0])


def test_a_file_without_a_row_is_refused(log):
    with pytest.raises(LogError, match="no loss, no score and no time"):
        read("lightning_csv", log, "epoch,step,loss\n")
