"""energies: sums over processes, and which are flagged."""

from dlbench.log import energies

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
