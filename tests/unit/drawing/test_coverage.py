"""The figure of coverage: what a block with free axes excludes."""

import json

from dlbench.drawing.figures import coverage
from support.results import made_tables
from support.results.drawn_figures import texts


def test_excluded_parameters_and_variables_are_named_as_those_of_runs_are():
    combination = {
        "model": "gpt",
        "nodes": 2,
        "devices_per_node": 4,
        "global_batch": None,  # of a formula without a value
        "variables": {"NCCL_ALGO": "Ring", "A_B": 1},
        "parameters.tensor_parallel": 4,
        "parameters.recompute": True,
        "runtime_options": {"start": "command"},
    }
    values = coverage._values(json.dumps(combination))
    assert values["variables"] == "A_B=1 NCCL_ALGO=Ring"
    assert values["trainer_parameters"] == "recompute=true tensor_parallel=4"
    assert values["runtime_options"] == "start=command"
    assert values["devices"] == 8
    assert "global_batch" not in values and "parameters.recompute" not in values


def test_what_was_excluded_has_its_share_of_the_global_batch_on_each_device():
    values = coverage._values(json.dumps({"nodes": 2, "devices_per_node": 4, "global_batch": 96}))
    assert values["batch_per_device"] == 12


def test_what_is_not_installed_is_counted_and_has_no_row(draw):
    rows = made_tables.study(strategy="single", devices=1)
    why = {"status": "skipped", "message": "horovod is not installed in envs/train"}
    rows += made_tables.study(strategy="horovod", devices=[1, 2])
    rows = [row | why if row["strategy"] == "horovod" else row for row in rows]
    figure = draw("coverage", rows)
    (axes,) = figure.axes
    assert [len(line.get_xdata()) for line in axes.lines if line.get_label() == "skipped"] == []
    assert "3 ok \u00b7 1 excluded \u00b7 6 skipped" in texts(axes)
    assert "6 skipped: horovod is not installed" in figure.legends[0].get_title().get_text()
