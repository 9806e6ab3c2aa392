"""The figure of coverage: what a block with free axes excludes."""

import json

from dlbench.figures.campaign import coverage


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
