"""Probes of a run: which runs tell what its step is made of."""

from dataclasses import replace

import pytest

from dlbench.study import probes
from dlbench.study.runs import Run, is_of_statistics, is_sentinel
from support.studies.made_studies import BLOCK, refused, study

REAL = {
    "model": "lenet5",
    "dataset": "digits",
    "batch_per_device": 8,
    "epochs": 3,
    "evaluate": "yes",
}
TWO = {"strategy": "horovod", "launcher": "horovodrun", "devices_per_node": 2}


def left_out(**fields):
    return probes.of(Run(**{**REAL, **fields}))


def test_each_probe_lacks_one_thing_more_than_the_one_before_it():
    found = left_out(**TWO, augment=False, cache="none", page_cache="warm")
    assert tuple(found) == probes.KINDS
    whole, no_reading, no_input, no_exchange, one_device, no_waits = found.values()
    assert (whole.strategy, whole.steps, whole.epochs, whole.evaluate) == (
        "horovod",
        probes.STEPS,
        None,
        "auto",
    )
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
        (
            {**TWO, "devices_per_node": 1, "nodes": 2},
            ["whole", "no_reading", "no_input", "one_device", "no_waits"],
        ),
    ],
    ids=["one device", "no model", "synthetic", "few steps", "windows", "one device a node"],
)
def test_a_run_has_no_probe_without_what_it_does_not_have(fields, kinds):
    assert list(left_out(**fields)) == kinds


def test_probes_are_named_as_such_and_are_of_no_statistics():
    run = Run(**REAL)
    for probe in probes.of(run).values():
        assert "-probe-r1-" in probe.id
        assert not is_of_statistics(probe.id)
        assert not is_sentinel(probe.id)
        assert ", probe, repeat 1" in probe.label()
    assert is_of_statistics(run.id)


OWN = BLOCK | {"steps": 20, "explain": True, "repeats": 2}


def test_a_run_with_a_profile_has_the_probes_of_one_without():
    assert left_out(profile=True) == left_out()


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
    assert both.explained
    assert {modes[run_id] for run_id in both.explained} == {"train"}


def test_a_block_without_explain_has_the_runs_that_it_had():
    plain = study(OWN | {"explain": False})
    assert plain.explained == {}
    assert plain.runs == plain.without_probes
    assert {run.id for run in plain.runs} == {run.id for run in study(OWN).without_probes}


def test_runs_that_another_program_trains_cannot_be_explained():
    trainers = {"mine": {"command": ["true"], "log": "tf_cnn_benchmarks"}}
    message = refused(OWN | {"trainer": "mine"}, trainers=trainers)
    assert message.startswith("matrix[0] (block).explain: lenet5 synthetic batch 8")
    assert "is trained by another program" in message


def test_where_checkpoints_are_written_no_copies_are_planned():
    two = OWN | {"devices_per_node": 2, "strategy": "mirrored"}
    kinds = {tuple(own) for own in study(two, checkpoint_every_min=1).explained.values()}
    assert kinds == {("whole", "one_device", "no_waits")}
