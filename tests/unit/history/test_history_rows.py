"""Which campaigns are of one machine."""

import copy
from datetime import datetime, timezone

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


def machine(first, last, hosts=("n1",), **given):
    facts = history_rows.machine_facts([record(**given)])
    dates = (datetime(2026, month, 1, tzinfo=timezone.utc) for month in (first, last))
    return history_rows.Machine(
        "here", history_rows.machine_key(facts), facts, *dates, frozenset(hosts)
    )


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


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (machine(1, 2, gpus=8), machine(3, 4, gpus=4), "Both have the host n1"),
        (machine(1, 2, gpus=8), machine(3, 4, ["n2"], gpus=4), "They differ in gpus_per_node"),
        (machine(1, 3), machine(2, 4, ["n2"], gpus=4), "used no GPU"),
    ],
)
def test_keys_that_are_probably_one_machine_are_a_question(a, b, reason):
    (question,) = history_rows.questions([a, b], {})
    assert reason in question and f"machines: {{NAME: [{a.key}, {b.key}]}}" in question
    assert history_rows.questions([a, b], {a.key: "big", b.key: "big"}) == []
    assert history_rows.questions([a, b], {a.key: "big", b.key: "small"}) == []


def test_machines_that_were_measured_side_by_side_are_no_question():
    a, b = machine(1, 4, gpus=8), machine(2, 3, ["n2"], gpus=4)
    assert history_rows.questions([a, b], {}) == []


def test_a_key_of_two_machines_is_refused():
    assert sources.machine_names({"big": ["a", "b"]}) == {"a": "big", "b": "big"}
    with pytest.raises(Error, match="the key a is given to big and to small"):
        sources.machine_names({"big": ["a"], "small": ["a"]})
