"""config: what runs must learn, and when they are evaluated."""

import pytest

from support.studies.made_studies import BLOCK, refused, study

LEARNS = BLOCK | {"dataset": "digits", "epochs": 2}


def test_a_gate_is_kept_for_every_run_of_its_block():
    made = study(
        LEARNS | {"must_reach": {"top1": 0.9, "final_loss": 0.5}, "repeats": 2},
        BLOCK | {"name": "other", "steps": 5},
    )
    gated = {run.id for run in made.runs if run.dataset == "digits"}
    assert made.must_reach == {run_id: {"top1": 0.9, "final_loss": 0.5} for run_id in gated}
    assert len(gated) == 2


def test_a_gate_changes_no_run():
    assert study(LEARNS).runs == study(LEARNS | {"must_reach": {"top1": 0.9}}).runs


@pytest.mark.parametrize(
    "change",
    [
        {"must_reach": {"top5": 1.0}},
        {"epochs": None, "steps": 5, "evaluate": "yes", "must_reach": {"top1": 0.5}},
        {"epochs": None, "steps": 5, "must_reach": {"final_loss": 1}},
        {"model": "lstm_ptb", "dataset": "ptb", "must_reach": {"perplexity": 120}},
        {"model": "unet", "dataset": "blends", "must_reach": {"iou": 0.5}},
    ],
)
def test_scores_that_a_run_will_have_are_accepted(change):
    block = {key: value for key, value in (LEARNS | change).items() if value is not None}
    made = study(block)
    assert list(made.must_reach.values()) == [change["must_reach"]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"must_reach": {"iou": 0.5}}, "must_reach: lenet5 has no iou; it has: top1, top5"),
        (
            {"epochs": None, "steps": 5, "mode": "input", "must_reach": {"final_loss": 1}},
            "must_reach: mode input has no model, so it learns nothing",
        ),
        ({"must_reach": {"top2": 0.5}}, "must_reach: unknown key 'top2' (did you mean 'top"),
        ({"must_reach": {}}, "must_reach: expected at least one key"),
        ({"must_reach": {"top1": "0.9"}}, 'must_reach.top1: expected a number, found "0.9"'),
        (
            {"epochs": None, "steps": 5, "must_reach": {"top1": 0.9}},
            'must_reach: top1 needs an evaluation; give epochs, or evaluate: "yes"',
        ),
        (
            {"epochs": None, "steps": 5, "mode": "forward", "must_reach": {"top1": 0.9}},
            "must_reach: top1 needs an evaluation",
        ),
    ],
)
def test_scores_that_a_run_will_not_have_are_refused(change, message):
    block = {key: value for key, value in (LEARNS | change).items() if value is not None}
    assert f"matrix[0] (block).{message}" in refused(block)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "dataset synthetic has no held-out items to evaluate"),
        ({"dataset": "digits", "mode": "forward"}, "mode forward learns nothing that could be"),
    ],
)
def test_an_evaluation_needs_items_and_learning(change, message):
    assert message in refused(BLOCK | {"steps": 5, "evaluate": "yes"} | change)
    assert study(BLOCK | {"steps": 5, "evaluate": "no"} | change)
