"""gates: whether a run learned what it must."""

import pytest

from dlbench.study import learning_gates


@pytest.mark.parametrize(
    ("must_reach", "found", "verdict"),
    [
        (None, {"top1": 0.1}, None),
        ({}, {"top1": 0.1}, None),
        ({"top1": 0.9}, {"top1": 0.9}, "reached"),
        ({"iou": 0}, {"iou": 0.0}, "reached"),
        ({"perplexity": 120}, {"perplexity": 120.0}, "reached"),
        ({"final_loss": 0.5}, {"final_loss": -1.0, "top1": 0.0}, "reached"),
        ({"top1": 0.9}, {"top1": 0.89996}, "missed: top1 0.9, expected at least 0.9"),
        ({"iou": 0.5}, {"iou": 0.0}, "missed: iou 0, expected at least 0.5"),
        ({"perplexity": 9}, {"perplexity": 9.5}, "missed: perplexity 9.5, expected at most 9"),
        ({"top1": 0.9}, {"top1": None}, "missed: top1 not evaluated, expected at least 0.9"),
        (
            {"top1": 0.9, "final_loss": 1, "top5": 0.5},
            {"top1": 0.123456, "final_loss": 2.0, "top5": 0.6},
            "missed: top1 0.1235, expected at least 0.9; final_loss 2, expected at most 1",
        ),
    ],
)
def test_a_score_is_met_or_missed_by_what_was_found(must_reach, found, verdict):
    assert learning_gates.gate(must_reach, found) == verdict


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
