"""Derived numbers: energy an image, time to accuracy, the clock, real and synthetic."""

import math

import numpy as np
import pytest

from dlbench.results import run_rows
from dlbench.study.runs import FIELDS, Run

RUN = Run(model="lenet5", dataset="digits", batch_per_device=8, devices_per_node=2, epochs=3)
SUMMARY = {"burn_in_steps": 10, "steps_measured": 90, "images_per_second": 100.0, "resumes": 0}


def test_energy_per_image_is_over_all_items_of_all_steps():
    per_image = run_rows.energies_per_image_j(
        RUN, SUMMARY | {"energy_j": 3200.0, "node_energy_j": 8e3}
    )
    assert per_image == {
        "energy_per_image_j": 2.0,
        "host_energy_per_image_j": None,
        "node_energy_per_image_j": 5.0,
    }
    # Of a part or of no step it is not known.
    no_step = {"energy_j": 5.0, "burn_in_steps": 0, "steps_measured": 0}
    for change in ({"energy_j": None}, {}, {"energy_j": 5.0, "resumes": 1}, no_step):
        assert set(run_rows.energies_per_image_j(RUN, SUMMARY | change).values()) == {None}


@pytest.mark.parametrize(("clock", "shown"), [(80.0, "-20.0 %"), (125.0, "+25.0 %")])
def test_a_clock_that_differs_by_more_than_five_percent_and_a_batch_is_named(clock, shown):
    found = run_rows.epochs_check(SUMMARY | {"epochs_images_per_second": clock})
    assert found == (
        f"{shown}: epochs x images / time is {clock:.4g} items/s, the steps say 100; "
        "expected at most 6.11 % apart"
    )
    assert run_rows.disagreement(found) == f"throughput by the clock differs by {found}"
    for other, expected in ((100.0, "agrees"), (94.5, "agrees"), (105.5, "agrees"), (None, None)):
        found = run_rows.epochs_check(SUMMARY | {"epochs_images_per_second": other})
        assert (found, run_rows.disagreement(found)) == (expected, "")


def test_the_training_time_is_that_of_the_slowest_rank_and_nothing_before_the_first_step():
    ranks, steps = np.repeat([0, 1], 4), np.tile([1, 2, 3, 4], 2)
    times = np.array([1.0, 3.0, 1.0, 9.0, 2.0, 1.0, 2.5, 1.0])
    assert run_rows.training_time_s(ranks, steps, times, until=3) == 5.5
    assert run_rows.training_time_s(ranks, steps, times, until=0) == 0.0


EVALS = [
    {"epoch": 0, "step": 0, "t_s": 1.0, "top1": 0.1, "top5": 0.5},
    {"epoch": 1, "step": 20, "t_s": 4.0, "top1": 0.92, "top5": 0.95},
    {"epoch": 2, "step": 40, "t_s": 7.0, "top1": 0.91, "top5": 0.99},
]


@pytest.mark.parametrize(
    ("must_reach", "epoch"),
    [
        ({"top1": 0.9}, 1),
        ({"top1": 0.9, "top5": 0.98}, 2),
        ({"top1": 0.9, "final_loss": 0.1}, 1),
        ({"top1": 0.05}, 0),
    ],
)
def test_time_to_accuracy_ends_at_the_first_evaluation_with_all_scores(must_reach, epoch):
    assert run_rows.reached_at(must_reach, EVALS)["epoch"] == epoch


@pytest.mark.parametrize(
    "must_reach", [None, {}, {"top1": 0.95}, {"final_loss": 9.0}, {"iou": 0.1}]
)
def test_a_score_that_is_never_reached_or_not_asked_for_has_no_time(must_reach):
    assert run_rows.reached_at(must_reach, EVALS) is None
    assert run_rows.reached_at({"top1": 0.1}, [{"top1": math.nan}, {"top1": None}]) is None


def rows(*cases):
    """(dataset, throughput, changes) as rows of the runs table."""
    made = []
    for dataset, rate, changes in cases:
        shape = changes.pop("item_shape", "32x32x1")
        run = Run(**{"model": "lenet5", "dataset": dataset, "batch_per_device": 8} | changes)
        made.append({name: getattr(run, name) for name in FIELDS})
        made[-1] |= {"status": "ok" if rate else "oom", "images_per_second": rate}
        made[-1] |= {"site": "here", "framework_version": "2", "device_model": "CPU"}
        made[-1]["item_shape"] = shape
    return made


def with_ratios(*cases):
    made = rows(*cases)
    given = [dict(row) for row in made]
    found = run_rows.with_shared(made)
    assert made == given  # rows are new
    return [(row.get("synthetic_ratio"), row.get("synthetic_runs")) for row in found]


def test_real_data_stands_beside_the_mean_of_the_same_on_synthetic_items():
    assert with_ratios(
        ("digits", 80.0, {"epochs": 3, "augment": False, "cache": "memory"}),
        ("digits", None, {"epochs": 3, "repeat": 2}),
        ("synthetic", 50.0, {"steps": 100}),
        ("synthetic", 200.0, {"steps": 100, "repeat": 2}),
        ("synthetic", None, {"steps": 100, "repeat": 3}),
    ) == [(pytest.approx(0.8), 2), *[(None, None)] * 4]


def test_a_failed_run_is_no_partner_and_has_none_though_it_has_a_throughput():
    made = rows(
        ("digits", 80.0, {"epochs": 3}),
        ("digits", 80.0, {"epochs": 3, "repeat": 2}),
        ("synthetic", 50.0, {"steps": 100}),
        ("synthetic", 200.0, {"steps": 100, "repeat": 2}),
    )
    made[1]["status"] = made[3]["status"] = "failed"
    made = run_rows.with_shared(made)
    assert [row.get("synthetic_ratio") for row in made] == [pytest.approx(1.6), None, None, None]
    assert made[0]["synthetic_runs"] == 1


def test_what_does_other_work_in_a_step_or_reads_items_of_another_shape_is_no_partner():
    for change in (
        {"batch_per_device": 16}, {"strategy": "mirrored"}, {"precision": "bfloat16"},
        {"xla": True}, {"devices_per_node": 2}, {"runtime": "apptainer"}, {"optimizer": "adam"},
        {"mode": "forward"},
    ):  # fmt: skip
        cases = ("digits", 80.0, {"steps": 9}), ("synthetic", 50.0, {"steps": 9} | change)
        assert with_ratios(*cases)[0] == (None, None), change
    # KIT's AlexNet reads CIFAR-10, and made-up images like those of ImageNet.
    for shapes in (("32x32x3", "227x227x3"), ("32x32x3", None), (None, None)):
        real, synthetic = ({"steps": 500, "item_shape": shape} for shape in shapes)
        cases = ("cifar10", 5258.0, real), ("synthetic", 632.0, synthetic)
        assert with_ratios(*cases)[0] == (None, None), shapes


def test_of_synthetic_runs_of_several_lengths_those_of_the_runs_own_are_the_partner():
    cases = [
        ("theirs", 80.0, {"steps": 500}),  # not known, so taken for a real one
        ("theirs", 80.0, {"epochs": 5}),
        ("synthetic", 40.0, {"steps": 500}),
        ("synthetic", 160.0, {"steps": 50}),
    ]
    made = rows(*cases)
    for row in made:
        row["steps_measured"] = row["steps"] or 9000
    made = run_rows.with_shared(made)
    assert [row.get("synthetic_ratio") for row in made[:2]] == [2.0, 2.0]


def test_a_run_that_failed_early_has_the_shape_of_others_of_its_model_and_dataset():
    made = rows(
        ("digits", 80.0, {}),
        ("digits", None, {"item_shape": None}),
        ("synthetic", None, {"item_shape": None}),
    )
    made = run_rows.with_shared(made)
    assert [row["item_shape"] for row in made] == ["32x32x1", "32x32x1", None]


def test_throughput_of_texts_is_in_tokens_too_and_what_a_log_of_others_states_stays():
    shapes, rates = ["128", "32x32x1", None, "128"], [10.0, 10.0, 10.0, None]
    made = [
        {"item_shape": shape, "images_per_second": rate}
        for shape, rate in zip(shapes, rates, strict=True)
    ]
    made.append({"item_shape": None, "images_per_second": 10.0, "tokens_per_second": 5120.0})
    made = run_rows.with_shared([{"status": "failed", "dataset": "x"} | row for row in made])
    assert [row.get("item") for row in made] == ["sequence", "image", None, "sequence", None]
    tokens = [row.get("tokens_per_second") for row in made]
    assert tokens == [1280.0, None, None, None, 5120.0]
