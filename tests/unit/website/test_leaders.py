"""leaders: machines are ranked only among conditions that are comparable."""

import math

import pytest

from dlbench.analysis.estimates import Estimate
from dlbench.pages import page_text
from dlbench.website import leaders, site_data
from support.history import made_histories as made

ALONE = made.fields(batch_per_device=16)
ON_TWO = made.fields(batch_per_device=8, devices_per_node=2, strategy="mirrored")


@pytest.fixture
def history(tmp_path):
    return tmp_path / "history"


def groups(history):
    return leaders.groups(site_data.read(history, {}))


def test_equal_global_batches_are_compared_and_what_else_differs_is_named(history):
    made.add(history, 0, {ALONE: [100.0]}, machine="EPYC")
    made.add(history, 0, {ON_TWO: [150.0]}, machine="Xeon")
    (group,) = groups(history)
    assert [one.machine.hardware[:8] for one in group.series] == ["2 x Xeon", "2 x EPYC"]
    assert {"strategy", "devices_per_node", "batch_per_device"} == set(group.differing)
    text = page_text.text(leaders.page(site_data.read(history, {})), 200)
    assert "lenet5, synthetic, batch 16 in all" in text
    assert "mirrored" in text and "0.667" in text


@pytest.mark.parametrize(
    ("other", "meaning"),
    [
        (made.fields(batch_per_device=32), "{}"),
        (made.fields(model="resnet50", batch_per_device=16), "{}"),
        (made.fields(batch_per_device=16, precision="bfloat16"), "{}"),
        (ALONE, '{"data":"ff"}'),
    ],
)
def test_what_differs_in_batch_model_precision_or_data_is_not_compared(history, other, meaning):
    made.add(history, 0, {ALONE: [100.0]}, machine="EPYC", meaning='{"data":"aa"}')
    made.add(
        history, 0, {other: [150.0]}, machine="Xeon", meaning=meaning.replace("{}", '{"data":"aa"}')
    )
    assert groups(history) == []


def test_of_a_machine_its_best_condition_counts(history):
    made.add(history, 0, {ALONE: [100.0], ON_TWO: [180.0]}, machine="EPYC")
    made.add(history, 0, {ALONE: [120.0]}, machine="Xeon")
    (group,) = groups(history)
    assert [one.level.value for one in group.series] == pytest.approx([180, 120])


def test_the_lowest_leads_where_less_is_better_and_none_where_no_direction_is(history):
    for machine, value in (("EPYC", 3.0), ("Xeon", 2.0)):
        metric = {"metric": "latency", "unit": "ms"}
        made.add(history, 0, {ALONE: [value]}, machine=machine, better="lower", **metric)
        other = {"machine": machine, "session": f"{machine}n", "metric": "width"}
        made.add(history, 1, {ALONE: [value]}, better="", **other)
    (group,) = groups(history)
    assert group.metric == "latency"
    assert [one.level.value for one in group.series] == pytest.approx([2, 3])


def test_the_interval_of_a_ratio_has_the_uncertainty_of_both_levels():
    level, base = (
        Estimate(value, value / f, value * f, 5) for value, f in ((90, 1.03), (100, 1.04))
    )
    found = leaders.ratio(level, base)
    assert found.value == pytest.approx(0.9)
    assert math.log(found.high / found.value) == pytest.approx(
        math.hypot(math.log(1.03), math.log(1.04))
    )
    assert math.isnan(leaders.ratio(level, Estimate(100, math.nan, math.nan, 1)).low)


def test_a_condition_whose_runs_missed_their_learning_gate_does_not_lead(history):
    made.add(history, 0, {ALONE: [100.0]}, machine="EPYC", missed=0)
    made.add(history, 0, {ALONE: [110.0]}, machine="Xeon")
    made.add(history, 0, {ALONE: [190.0]}, machine="Faster", missed=0)
    made.add(history, 1, {ALONE: [191.0]}, machine="Faster", missed=2)
    (group,) = groups(history)
    assert [one.machine.hardware[:8] for one in group.series] == ["2 x Xeon", "2 x EPYC"]
    page = leaders.page(site_data.read(history, {}))
    gates = [row[4] for row in page.sections[1].table.rows]
    assert gates == ["not known", "reached"]
    (row,) = page.sections[-1].table.rows
    assert page.sections[-1].heading == "Not among the leaders"
    assert row[1].note.startswith("2 x Faster") and row[3].text == "2 missed"
