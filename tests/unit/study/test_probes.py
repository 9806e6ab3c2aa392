"""Probes of a run: which runs tell what its step is made of."""

import re
from dataclasses import replace

import pytest

from dlbench.study import probes
from dlbench.study.runs import Run, is_of_statistics, is_sentinel
from support.studies.made_studies import BLOCK, refused, study

REAL = {"model": "lenet5", "dataset": "digits", "batch_per_device": 8, "epochs": 3,
        "evaluate": "yes"}  # fmt: skip
TWO = {"strategy": "horovod", "launcher": "horovodrun", "devices_per_node": 2}


def left_out(**fields):
    return probes.of(Run(**{**REAL, **fields}))


def test_each_probe_lacks_one_thing_more_than_the_one_before_it():
    found = left_out(**TWO, augment=False, cache="none", page_cache="warm")
    assert tuple(found) == probes.KINDS
    whole, no_reading, no_input, no_exchange, one_device, no_waits = found.values()
    assert (whole.strategy, whole.steps, whole.epochs) == ("horovod", probes.STEPS, None)
    assert whole.evaluate == "auto"
    of_items = whole, no_reading, no_input
    assert [run.probe for run in of_items] == ["stored", "copied", "synthetic"]
    assert replace(no_reading, probe="synthetic") == no_input
    assert (no_input.strategy, no_input.dataset, no_input.cache) == ("horovod", "digits", "auto")
    assert (whole.page_cache, no_input.page_cache) == ("warm", "as_found")
    assert (no_exchange.strategy, no_exchange.launcher) == ("single", "none")
    assert (no_exchange.devices, no_exchange.copies_per_node) == (1, 2)
    assert (one_device.devices, one_device.copies_per_node) == (1, 1)
    assert (one_device.steps_per_sync, no_waits.steps_per_sync) == (None, probes.WINDOW_STEPS)


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({}, ["whole", "no_reading", "no_input", "no_waits"]),
        ({"mode": "input", "epochs": None, "steps": 5, "evaluate": "auto"}, []),
        ({"dataset": "synthetic", "epochs": None, "steps": 20}, ["whole", "no_waits"]),
        ({"dataset": "synthetic", "epochs": None, "steps": 5}, ["whole"]),
        ({"steps_per_sync": 10}, ["whole", "no_reading", "no_input"]),
        ({**TWO, "devices_per_node": 1, "nodes": 2},
         ["whole", "no_reading", "no_input", "one_device", "no_waits"]),
    ],
    ids=["one device", "no model", "synthetic", "few steps", "windows", "one device a node"],
)  # fmt: skip
def test_a_run_has_no_probe_without_what_it_does_not_have(fields, kinds):
    assert list(left_out(**fields)) == kinds
    assert left_out(**fields, profile=True) == left_out(**fields)


def test_probes_are_named_as_such_and_are_of_no_statistics():
    run = Run(**REAL)
    for probe in probes.of(run).values():
        assert "-probe-r1-" in probe.id
        assert not is_of_statistics(probe.id)
        assert not is_sentinel(probe.id)
        assert f", probe {probe.probe}, repeat 1" in probe.label()
    assert is_of_statistics(run.id)


OWN = BLOCK | {"steps": 20, "explain": True, "repeats": 2}


def test_strategies_that_are_explained_share_the_probes_of_one_device():
    explained = study(OWN | {"devices_per_node": 2, "strategy": ["horovod", "mirrored"]})
    asked = [run for run in explained.runs if not run.probe]
    assert set(explained.explained) == {run.id for run in asked}
    assert tuple(asked) == explained.without_probes
    # Of each repeat: two whole ones, and the copies, the one device and its windows of both.
    assert len(explained.runs) - len(asked) == 2 * 5
    shared = explained.explained[asked[0].id]["one_device"]
    (device,) = [run for run in explained.runs if run.id == shared]
    assert {run.strategy for run in explained.explained_by(device)} == {"horovod", "mirrored"}


def test_of_both_modes_of_a_block_the_one_with_a_model_is_explained():
    both = study(OWN | {"dataset": "digits", "mode": ["train", "input"]})
    modes = {run.id: run.mode for run in both.without_probes}
    assert set(modes.values()) == {"train", "input"}
    assert {modes[run_id] for run_id in both.explained} == {"train"}
    plain = study(OWN | {"dataset": "digits", "mode": ["train", "input"], "explain": False})
    assert (plain.explained, plain.runs) == ({}, plain.without_probes)
    assert modes.keys() == {run.id for run in plain.runs}


TRAINERS = {"mine": {"command": ["true", "{items}", "{backend}"], "log": "tf_cnn_benchmarks"}}
THEIRS = OWN | {"trainer": "mine", "parameters": {"items": ["real"], "backend": "nccl"}}
LEFT_OUT = {"exchange": {"backend": "none"}, "input": {"items": "synthetic"}}


def test_another_program_leaves_parts_out_one_after_another_by_its_parameters():
    explained = study(THEIRS | {"explain": LEFT_OUT, "repeats": 1}, trainers=TRAINERS)
    (asked,) = explained.without_probes
    runs = {run.id: run for run in explained.runs}
    found = {kind: runs[probe] for kind, probe in explained.explained[asked.id].items()}
    assert [(kind, probe.trainer_parameters) for kind, probe in found.items()] == [
        ("whole", "backend=nccl items=real"),
        ("no_reading", "backend=nccl items=synthetic"),
        ("no_exchange", "backend=none items=synthetic"),
    ]
    assert {probe.steps for probe in found.values()} == {asked.steps}
    assert not any(map(is_of_statistics, explained.explained[asked.id].values()))


def test_a_run_without_the_part_has_no_probe_for_it():
    both = {"items": ["real", "synthetic"], "backend": "nccl"}
    explain = {"parameters": both, "explain": {"input": {"items": "synthetic"}}}
    explained = study(THEIRS | explain, trainers=TRAINERS)
    asked = [run for run in explained.without_probes if run.id in explained.explained]
    assert {run.trainer_parameters for run in asked} == {"backend=nccl items=real"}
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "lenet5 synthetic batch 8.* is trained by another program; expected parameters"),
        ({"explain": {"inputs": {"items": "x"}}}, r"unknown key 'inputs' \(did you mean 'input'"),
        ({"explain": {"input": {"item": "x"}}}, r"input: the block has no parameter item \(did"),
        ({"explain": {"input": {"items": [1]}}}, "input.items: expected a text or a number"),
        ({"explain": {"waits": {"size": 4}}, "batch_per_device": "{size}",
          "parameters": {"items": "real", "backend": "nccl", "size": 8}},
         "waits: with it a step has 4 items on 1 devices, instead of 8 on 1"),
    ],
    ids=["true", "no part", "no parameter", "a list", "other items"],
)  # fmt: skip
def test_what_another_program_cannot_leave_out_is_refused(changes, message):
    assert re.search(message, refused(THEIRS | changes, trainers=TRAINERS))


def test_dlbench_leaves_out_parts_of_its_own_steps_without_parameters():
    message = refused(OWN | {"explain": LEFT_OUT})
    assert message.endswith("explain: expected true; parameters are of another program")


def test_where_checkpoints_are_written_no_copies_are_planned():
    two = OWN | {"devices_per_node": 2, "strategy": "mirrored"}
    kinds = {tuple(own) for own in study(two, checkpoint_every_min=1).explained.values()}
    assert kinds == {("whole", "one_device", "no_waits")}
