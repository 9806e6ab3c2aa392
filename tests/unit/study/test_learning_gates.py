"""gates: whether a run learned what it must."""

import pytest

from dlbench.study import learning_gates


@pytest.mark.parametrize("must_reach", [None, {}])
def test_where_nothing_is_asked_nothing_is_judged(must_reach):
    assert learning_gates.gate(must_reach, {"top1": 0.1}) is None


@pytest.mark.parametrize(
    ("must_reach", "found"),
    [
        ({"top1": 0.9}, {"top1": 0.9}),
        ({"top1": 0.9, "top5": 0.99}, {"top1": 0.95, "top5": 1.0}),
        ({"iou": 0}, {"iou": 0.0}),
        ({"perplexity": 120}, {"perplexity": 120.0}),
        ({"final_loss": 0.5}, {"final_loss": -1.0, "top1": 0.0}),
    ],
)
def test_a_bound_that_is_met_is_reached(must_reach, found):
    assert learning_gates.gate(must_reach, found) == learning_gates.REACHED


@pytest.mark.parametrize(
    ("must_reach", "found", "message"),
    [
        ({"top1": 0.9}, {"top1": 0.89996}, "missed: top1 0.9, expected at least 0.9"),
        ({"top1": 0.9}, {"top1": 0.123456}, "missed: top1 0.1235, expected at least 0.9"),
        ({"iou": 0.5}, {"iou": 0.0}, "missed: iou 0, expected at least 0.5"),
        (
            {"perplexity": 120},
            {"perplexity": 120.5},
            "missed: perplexity 120.5, expected at most 120",
        ),
        ({"final_loss": 0.5}, {"final_loss": 2.3}, "missed: final_loss 2.3, expected at most 0.5"),
        (
            {"top1": 0.9, "final_loss": 1, "top5": 0.5},
            {"top1": 0.1, "final_loss": 2.0, "top5": 0.6},
            "missed: top1 0.1, expected at least 0.9; final_loss 2, expected at most 1",
        ),
    ],
)
def test_a_bound_that_is_missed_is_shown_with_what_was_found(must_reach, found, message):
    assert learning_gates.gate(must_reach, found) == message


@pytest.mark.parametrize("found", [{}, {"top1": None}])
def test_a_score_that_was_not_taken_is_missed(found):
    verdict = learning_gates.gate({"top1": 0.9}, found)
    assert verdict.startswith("missed: ")
    assert "not evaluated" in verdict
    assert "expected at least 0.9" in verdict


BANDWIDTH = {"name": "busbw", "value": 95.0, "unit": "GB/s", "better": "higher"}


@pytest.mark.parametrize(
    ("changes", "bound", "verdict"),
    [
        ({}, 95, "reached"),
        ({}, 100, "missed: busbw 95, expected at least 100"),
        ({"better": "lower"}, 100, "reached"),
        ({"better": "lower"}, 90, "missed: busbw 95, expected at most 90"),
        ({"better": ""}, 90, "missed: busbw 95: whether more is better is not known"),
        ({"name": "other"}, 90, "missed: the program gave no busbw"),
    ],
)
def test_a_metric_has_a_bound_in_its_direction(changes, bound, verdict):
    summary = {"metrics": [BANDWIDTH | changes]}
    assert learning_gates.gate({"metrics": {"busbw": bound}}, summary) == verdict
