"""The figure of parameters: throughput against what a study gives to other programs."""

import pytest

from support.results import made_tables
from support.results.drawn_figures import has


def swept(**changes):
    """Runs of a program by tensor parallelism and schedule."""
    return [
        row
        for tensor in (1, 2, 8)
        for schedule in ("1f1b", "zbv")
        for row in made_tables.study(
            trainer_parameters=f"schedule={schedule} tensor_parallel={tensor}",
            repeats=2,
            scale=1 / (1 + 0.1 * tensor),
            **changes,
        )
    ]


def labels(axis):
    return [label.get_text() for label in axis.get_xticklabels()]


def test_each_parameter_has_a_panel_whose_values_are_equally_far_apart(panels):
    rows = swept()
    schedule, tensor = panels("parameters", rows)
    assert [axes.get_xlabel() for axes in (schedule, tensor)] == ["schedule", "tensor_parallel"]
    assert (labels(schedule), labels(tensor)) == (["1f1b", "zbv"], ["1", "2", "8"])
    places = tensor.transData.transform([(x, 0) for x in tensor.get_xticks()])[:, 0]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1])
    mean = (rows[0]["images_per_second"] * rows[1]["images_per_second"]) ** 0.5
    assert has(tensor, mean) and has(schedule, mean)


def test_a_batch_that_follows_from_a_parameter_is_in_no_name(panels):
    rows = [
        row
        for micro in (1, 2, 4)
        for tensor in (1, 2)
        for row in made_tables.study(
            trainer_parameters=f"micro_batch={micro} tensor_parallel={tensor}",
            batch_per_device=micro,
        )
    ]
    first, _ = panels("parameters", rows)
    (legend,) = first.figure.legends
    names = {text.get_text() for text in legend.get_texts()}
    assert names == {"tensor parallel 1", "tensor parallel 2"} | {
        f"micro batch {micro}" for micro in (1, 2, 4)
    }


def test_switches_and_fractions_are_named_as_the_study_has_them(panels):
    rows = [
        row
        for recompute in ("true", "false")
        for ratio in ("0.5", "0.25")
        for row in made_tables.study(trainer_parameters=f"ratio={ratio} recompute={recompute}")
    ]
    ratio, recompute = panels("parameters", rows)
    assert (labels(ratio), labels(recompute)) == (["0.25", "0.5"], ["false", "true"])


def test_runs_that_fail_at_a_value_are_crosses_there(panels):
    rows = made_tables.failing(
        swept(model="vgg16"), lambda row: "tensor_parallel=1" in row["trainer_parameters"]
    )
    _, tensor = panels("parameters", rows)
    assert "memory" in " ".join(text.get_text() for text in tensor.texts)
    assert labels(tensor) == ["1", "2", "8"]
