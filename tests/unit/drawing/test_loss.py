"""The figure of losses: which run of a series is drawn, and what is said of the others."""

import numpy as np
import pytest

from dlbench.analysis.frames import Tables
from dlbench.drawing import series
from dlbench.drawing.figures import loss
from support.results import made_tables


@pytest.fixture
def drawn(draw, tmp_path):
    """A function that draws rows of the runs table; returns the tables and the axes."""

    def drawn(rows):
        axes = draw("loss", rows, steps_each=100).axes
        return Tables(tmp_path, tmp_path / "runs"), axes

    return drawn


def test_the_longest_run_of_a_series_is_drawn_and_how_many_are_not(drawn):
    short, longest, again = made_tables.learning(devices=[1])
    longest["steps_measured"] = 900
    made, axes = drawn([short, longest, again])
    raw = axes[0].lines[0]
    assert raw.get_ydata() == pytest.approx(made.steps(longest["run_id"])["loss"])
    assert axes[0].get_title("left") == "lenet5 \u00b7 digits"
    assert "1 of 3 runs drawn" in _words(axes[0])


def test_runs_of_steps_beside_those_of_epochs_are_counted_as_not_drawn(drawn):
    long = made_tables.learning(repeats=1, devices=[1])
    short = made_tables.study(repeats=4, devices=[1], model="lenet5", dataset="digits")
    _, axes = drawn(long + short)
    assert len(axes[0].lines) == 2  # every step, and their mean
    assert "1 of 5 runs drawn" in _words(axes[0])


def test_of_runs_of_steps_those_that_are_scored_are_drawn(drawn):
    scored = made_tables.study(
        repeats=1, devices=[1], model="lenet5", dataset="digits", evaluate="yes"
    )
    short = made_tables.study(repeats=4, devices=[1], model="vgg16", dataset="digits")
    _, axes = drawn(scored + short)
    assert {axis.get_title("left") for axis in axes} == {"lenet5 \u00b7 digits", ""}


def test_epochs_of_a_log_that_knows_none_for_its_steps_are_those_that_were_asked_for(drawn):
    (row,) = made_tables.learning(repeats=1, devices=[1])
    made = drawn([row])[0]
    steps = made.steps(row["run_id"])
    made.steps = lambda run_id: steps.assign(epoch=np.nan)
    (one,) = series.series_along(None, series.started_runs(made.runs))["lenet5", "digits"]
    found = loss._training(one, made)
    assert found["epochs"][-1] == pytest.approx(20)


@pytest.mark.parametrize("length", [{"steps": 500}, {"steps": None, "epochs": 5}])
def test_runs_of_another_length_are_a_series_and_a_condition_of_their_own(tmp_path, length):
    rows = made_tables.study(devices=[1, 2]) + made_tables.study(devices=[1, 2], **length)
    made = made_tables.write(tmp_path, rows, 0)
    runs = series.started_runs(made.runs)
    (found,) = series.series_along("devices", runs).values()
    length_label = "500 steps" if length["steps"] else "5 epochs"
    assert sorted(len(one.runs) for one in found) == [6, 6]
    assert length_label in {one.name for one in found}
    (conditions,) = series.conditions(runs).values()
    assert {name for name, _ in conditions} >= {f"1 GPU, {length_label}", f"2 GPUs, {length_label}"}


def _words(axes):
    return " ".join(text.get_text() for text in axes.texts)
