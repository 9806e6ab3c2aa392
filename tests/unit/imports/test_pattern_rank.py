"""pattern_rank: numbers in lines become rows, columns and metrics, or are left out with a note."""

import math

import pytest

from dlbench.imports import kinds
from dlbench.imports.log_file import LogError, LogFile

STEP = r"step (?P<step>\S+) loss (?P<loss>\S+) took (?P<step_time_ms>\S+) ms"

BAR = r"(?P<step>\d+) of (?P<epoch_steps>\d+): (?P<step_time_s>\S+)"
EPOCH = r"(?P<epoch>\d)/(?P<step>\d+): (?P<step_time_s>\S+)"


def read(log, content, **patterns):
    log.write_text(content)
    (run,) = kinds.of_config({"step": STEP} | patterns, 1).read(LogFile(log))
    run.complete(run.columns)
    return run


def step(number, time_ms=125, loss=2.5):
    return f"step {number} loss {loss} took {time_ms} ms\n"


def test_steps_that_count_from_0_are_counted_from_1(log):
    run = read(log, step(0) + step(1) + step(2))
    assert list(run.steps.step) == [1, 2, 3]
    assert "steps count from 0 in the log, from 1 here" in run.notes
    # Lines without numbers of steps are numbered.
    run = read(log, "took 5 ms\n" * 3, step=r"took (?P<step_time_ms>\S+)")
    assert list(run.steps.step) == [1, 2, 3] and list(run.steps.warm_up) == [1, 0, 0]


@pytest.mark.parametrize(
    ("pattern", "content", "steps", "said"),
    [
        (BAR, "9 of 10: 1\n5 of 10: 1\n",
         None, "step 5 after step 9: lines of two runs, of several ranks, or of another epoch"),
        (BAR, "10 of 10: 1\n5 of 10: 1\n",
         [10, 15], None),
        (EPOCH, "3/5: 1\n3/10: 1\n4/5: 1\n",
         [25, 30, 35], "epochs are taken to be as long as the longest"),
        (EPOCH, "2/9: 1\n1/10: 1\n",
         None, "step 10 of epoch 1 after step 9 of epoch 2"),
        (r"(?P<steps>\d+) steps in (?P<window_time_s>\S+)", "20 steps in 5\n10 steps in 5\n",
         [20, 30], None),
        (r"(?P<step>\d+): (?P<steps>\d+) steps in (?P<window_time_s>\S+)",
         "20: 20 steps in 5\n50: 10 steps in 5\n", [20, 50], None),
    ],
)  # fmt: skip
def test_steps_that_begin_anew_are_of_another_epoch_if_that_is_known(
    log, pattern, content, steps, said
):
    if steps is None:
        with pytest.raises(LogError, match=said):
            read(log, content, step=pattern)
        return
    run = read(log, content, step=pattern)
    assert list(run.steps.step) == steps and (said or "") in "; ".join(run.notes)
    if "steps in" in content:
        assert list(run.steps.step_time_s) == [0.25, 0.5]


@pytest.mark.parametrize(
    ("warm_up", "expected"),
    [(None, [1, 0, 0, 0]), (0, [0, 0, 0, 0]), (2, [1, 1, 0, 0]), ("^step 3", [0, 0, 1, 0])],
)
def test_warm_up_is_the_first_line_or_what_is_said(log, warm_up, expected):
    entry = {} if warm_up is None else {"warm_up": warm_up}
    run = read(log, "".join(map(step, range(1, 5))), **entry)
    assert list(run.steps.warm_up) == expected


def test_what_is_no_number_is_left_out_with_its_line(log):
    run = read(log, step(1) + step(2, "n/a") + step("x") + step(4, 0) + step(5, loss="nan"))
    assert list(run.steps.step) == [1, 2, 4, 5]
    assert [math.isnan(time) for time in run.steps.step_time_s] == [False, True, True, False]
    notes = "\n".join(run.notes)
    assert "line 3 left out: a step whose number is none" in notes
    assert "lines 2 to 4, 2 of them, left out: step_time_ms that is no number above 0" in notes
    assert math.isnan(run.steps.loss[-1]) and "the loss is nan from line 5 on" in run.notes


def test_evaluations_have_scores_as_shares(log):
    pattern = r"eval (?P<epoch>\d+): (?P<loss>\S+) top1 (?P<top1_percent>\S+)%"
    run = read(log, step(1) + step(2) + "eval 1: 2.5 top1 75%\neval 2: 2.0 top1 900%\n",
               evaluation=pattern)  # fmt: skip
    assert run.evals == [
        {"split": "validation", "epoch": 1, "loss": 2.5, "top1": 0.75},
        {"split": "validation", "epoch": 2, "loss": 2.0},
    ]
    assert "line 4 left out: top1 of an evaluation: '900'" in run.notes


def test_settings_are_the_first_that_the_log_states_and_learning_rates_columns_of_steps(log):
    content = "batch 1,024\nitems of 3x4\nbatch 2\n1 lr 0.5 1\n2 lr 0.25 1\n"
    patterns = [r"batch (?P<global_batch>\S+)", r"items of (?P<item_shape>\S+)"]
    steps = r"(?P<step>\d+) lr (?P<learning_rate>\S+) (?P<step_time_s>\S+)"
    run = read(log, content, settings=patterns, step=steps)
    assert (run.columns["global_batch"], run.columns["item_shape"]) == (1024, "3x4")
    assert list(run.steps.more["learning_rate"]) == [0.5, 0.25]


def test_of_several_lines_with_a_metric_the_last_counts(log):
    metrics = {
        "bw": {"pattern": r"bw (?P<value>\S+) (?P<unit>\S+)", "better": "higher"},
        "odd": r"odd (\S+)",
    }
    run = read(log, step(1) + step(2) + "bw 3 GB/s\nbw 4,000 GB/s\nodd inf\n", metrics=metrics)
    assert run.metrics == [{"name": "bw", "value": 4000, "unit": "GB/s", "better": "higher"}]
    assert "line 5 left out: metric odd: expected a finite number, found 'inf'" in run.notes


@pytest.mark.parametrize(("unit", "line"), [({}, 2), ({"unit": "MB/s"}, 1)])
def test_a_metric_of_another_unit_is_refused(log, unit, line):
    metrics = {"bw": {"pattern": r"bw (?P<value>\S+) (?P<unit>\S+)"} | unit}
    with pytest.raises(LogError, match=f"line {line}: metric bw has the unit '.B/s', expected '.B"):
        read(log, "bw 3 GB/s\nbw 4 MB/s\n" + step(1), metrics=metrics)
