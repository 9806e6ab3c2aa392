"""Which campaigns are of one machine."""

import copy

import pytest

from dlbench import Error
from dlbench.history import history_rows, sources
from dlbench.study.runs import Run
from support.history import made_campaigns

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=50)


def record(**given):
    return made_campaigns.record(RUN, 100.0, made_campaigns.FIRST, "s", **given)


def key(*records):
    return history_rows.machine_key(history_rows.machine_facts(records))


def test_what_moves_between_boots_does_not_change_the_key():
    before, after = record(gpus=8), record(gpus=8, host="n2", driver="560.35", kernel="7.0")
    (hardware,) = after["provenance"]["hardware"].values()
    hardware["cpu"] |= {"microcode": "0x2", "frequency_mhz": [800.0, 10681.0], "threads": 4}
    hardware["cpu"]["model"] += " @ 2.60GHz"
    hardware["memory"]["gib"] = 28
    hardware["gpus"]["kinds"] = [made_campaigns.GPU | {"vbios": "97", "clock_sm_max_mhz": 1}]
    after["provenance"]["present"]["memory_bytes"] *= 2
    assert key(before) == key(after)


@pytest.mark.parametrize(
    "other", [{"gpus": 4}, {"gpus": 8, "cpu": {"model": "other"}}, {"gpus": 8, "cpu": {"cores": 4}}]
)
def test_other_models_and_numbers_are_another_machine(other):
    assert key(record(gpus=8)) != key(record(**other))


def test_a_run_on_one_of_eight_gpus_is_of_the_machine_with_eight():
    facts = history_rows.machine_facts([record(gpus=8)])
    assert facts["gpus_per_node"] == 8
    assert history_rows.machine_name(facts) == "1 x AMD EPYC, 2 cores; 8 x NVIDIA H100 80GB HBM3"


def test_a_session_with_runs_without_gpus_is_of_the_machine_with_gpus():
    assert key(record(gpus=8), record()) == key(record(gpus=8))


def test_records_of_early_versions_have_a_machine():
    early = copy.deepcopy(record())
    del early["provenance"]["hardware"]
    assert history_rows.machine_name(history_rows.machine_facts([early])) == "AMD EPYC"


def test_a_key_of_two_machines_is_refused():
    assert sources.machine_names({"big": ["a", "b"]}) == {"a": "big", "b": "big"}
    with pytest.raises(Error, match="the key a is given to big and to small"):
        sources.machine_names({"big": ["a"], "small": ["a"]})
