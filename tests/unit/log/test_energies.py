"""energies and metrics: sums over processes, and what a program may name."""

import json

import pytest

from dlbench import Error
from dlbench.log import energies, event_fields, metrics
from dlbench.machine import energy

GPUS = {"energy_j": 100.0, "energy_source": "counter", "energy_samples": 90}
GPUS |= {"energy_sampled_share": 1.0, "energy_resolution_s": 1.0}
HOST = {f"host_{name}": value for name, value in GPUS.items()}


def test_processes_add_up_and_the_worst_reading_stands():
    other = GPUS | {"energy_samples": 80, "energy_sampled_share": 0.75, "energy_resolution_s": 2.0}
    other["energy_source"] = "integrated power"
    found = energies.summary([GPUS | HOST, other], {})
    assert (found["energy_j"], found["energy_samples"]) == (200.0, 80)
    assert found["energy_source"] == "counter; integrated power"
    assert (found["energy_sampled_share"], found["energy_resolution_s"]) == (0.75, 2.0)
    assert found["energy_remark"] == "GPUs: readings for 75.0 % of the time"
    # Only the first process of a node reads its processors.
    assert (found["host_energy_j"], found["node_energy_j"]) == (100.0, None)


def test_an_energy_that_one_process_does_not_know_is_unknown_with_the_reasons():
    blind = {"energy_j": None, "energy_unknown": "no driver", "host_energy_j": None}
    found = energies.summary([GPUS | HOST, blind | {"host_energy_unknown": "root only"}], {})
    assert (found["energy_j"], found["energy_unknown"]) == (None, "no driver")
    assert (found["host_energy_j"], found["host_energy_unknown"]) == (None, "root only")
    assert found["energy_remark"] is None


def test_a_short_run_is_flagged_for_each_of_its_energies():
    meter = {"node_energy_j": 5.0, "node_energy_samples": 59, "node_energy_sampled_share": 0.9996}
    found = energies.summary([GPUS | HOST | {"energy_samples": 3}], meter)
    assert found["energy_remark"] == (
        "GPUs: 3 readings, fewer than 60; node: 59 readings, fewer than 60, for 99.9 % of the time"
    )


CRAY = {"energy_j": 300.0, "energy_source": f"{energies.NODES_GPUS}: Cray", "energy_note": "why"}
NODE = HOST | {"node_energy_j": 900.0, "node_energy_source": "node: Cray"}


@pytest.mark.parametrize(
    ("meter", "expected"),
    [
        ({}, (1800, "node: Cray", "GPUs: why")),
        ({"node_energy_j": None, "node_energy_unknown": "2 nodes", "trouble": "2 nodes"}, None),
        ({"node_energy_j": 2e3, "node_energy_source": "meter"}, (2000, "meter", "GPUs: why")),
    ],
)
def test_what_one_rank_of_a_node_counts_is_that_of_the_node_and_counts_once(meter, expected):
    blind = {"energy_j": None, "energy_unknown": "no NVML"}
    found = energies.summary([CRAY | NODE, blind, CRAY | NODE, blind], meter)
    assert (found["energy_j"], found["host_energy_j"]) == (600, 200)
    told = tuple(found[name] for name in ("node_energy_j", "node_energy_source", "energy_remark"))
    assert told == (expected or (1800, "node: Cray", "GPUs: why"))
    assert energies.NODES_GPUS == energy.NODES_GPUS


def test_a_log_of_before_it_was_counted_says_nothing_of_quality():
    found = energies.summary([{"energy_j": 5.0}, {"energy_j": 7.0}], {})
    assert (found["energy_j"], found["energy_samples"]) == (12.0, None)
    assert found["energy_remark"] is None
    assert energies.summary([{"energy_j": 5.0}, {}], {})["energy_j"] is None


def test_of_several_gpus_the_least_limit_stands_and_a_run_without_one_says_nothing():
    gpus = [{"found_w": 300.0, "enforced_w": 200.0}, {"found_w": 250.0, "enforced_w": 201.0}]
    found = energies.power_limits({"asked_w": 200, "gpus": gpus})
    assert found == {"power_limit_found_w": 250.0, "power_limit_enforced_w": 200.0}
    assert energies.power_limits({}) == {}


BANDWIDTH = {"name": "busbw_gb_per_s", "value": 230.5, "unit": "GB/s", "better": "higher"}


def event(**changes):
    return json.dumps({"event": "metric", **BANDWIDTH, **changes}).encode()


def test_a_metric_is_a_name_a_finite_number_a_unit_and_a_direction():
    metrics.check([BANDWIDTH, BANDWIDTH | {"name": "skew", "value": -1, "unit": "", "better": ""}])
    assert event_fields.parse_event(event()) == {"event": "metric", **BANDWIDTH}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "2nd"}, "metric '2nd': expected a name of at most 80 letters"),
        ({"value": float("nan")}, "metric busbw_gb_per_s: expected a finite number .* found nan"),
        ({"value": 1e31}, "found 1e\\+31"),
        ({"value": True}, "found True"),
        ({"unit": None}, "metric busbw_gb_per_s: expected its unit as text, found None"),
        ({"better": "more"}, 'expected better as "higher", "lower" or "", not \'more\''),
        ({"rank": 1}, "expected name, value, unit, better, found name, value, unit, better, rank"),
    ],
)
def test_what_is_no_metric_is_refused_with_its_name(changes, message):
    with pytest.raises(Error, match=message):
        metrics.check([BANDWIDTH | changes])
    with pytest.raises(Error, match="metric busbw_gb_per_s twice in one run: expected one value"):
        metrics.check([BANDWIDTH, BANDWIDTH | {"value": 1}])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"value": "nan"}, "metric: expected value to be a number, found nan"),
        ({"name": "a b"}, "metric: expected name to be a name of at most 80 letters"),
        ({"better": "up"}, "metric: expected better to be"),
        ({"step": 1}, "metric: there is no step"),
    ],
)
def test_a_log_with_a_wrong_metric_is_refused(changes, message):
    with pytest.raises(event_fields.LogError, match=message):
        event_fields.parse_event(event(**changes))


def test_a_number_of_a_summary_is_a_column_or_else_a_metric():
    summary = {"images_per_second": 8.0, "top1": None, "metrics": [BANDWIDTH]}
    assert metrics.value_of(summary, "images_per_second") == 8.0
    assert metrics.value_of(summary, "busbw_gb_per_s") == 230.5
    assert metrics.value_of(summary, "top1") is None and metrics.value_of({}, "x") is None
