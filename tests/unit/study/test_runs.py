"""runs.Run: an immutable value with a name that never changes."""

import dataclasses
import itertools
import json
import tracemalloc

import pytest

from dlbench import Error
from dlbench.study.runs import DEFAULTS, FIELDS, FLAGS, Run, is_sentinel, labels, shuffled

LENET = Run(model="lenet5", dataset="digits", batch_per_device=64, steps=100)


def test_ids_never_change_between_releases():
    scaled = dataclasses.replace(
        LENET, strategy="horovod", launcher="horovodrun", devices_per_node=2, precision="bfloat16"
    )
    assert LENET.id == "lenet5-digits-b64-single-1x1-r1-e8d7321263"
    assert scaled.id == "lenet5-digits-b64-bfloat16-horovod-1x2-r1-931b9ddb00"


def test_a_value_equal_to_its_default_is_left_out_of_the_id():
    for name, default in DEFAULTS.items():
        assert dataclasses.replace(LENET, **{name: getattr(LENET, name) or default}).id == LENET.id
    assert set(LENET.values()) == {"model", "dataset", "batch_per_device", "steps"}


@pytest.mark.parametrize("name", [n for n in FIELDS if n not in ("model", "dataset")])
def test_every_field_is_part_of_the_id_and_labels_say_in_what_runs_differ(name):
    value = getattr(LENET, name)
    other = value + 1 if isinstance(value, int | float) else 7 if name == "epochs" else "other"
    changed = dataclasses.replace(LENET, **{name: other})
    assert changed.id != LENET.id
    found = labels([LENET, changed])
    assert len(set(found.values())) == 2
    if LENET.label() == changed.label():
        assert f", {name} {other}, repeat 1" in found[changed.id]


def test_a_label_says_no_more_than_it_must():
    runs = [dataclasses.replace(LENET, seed=s, batch_per_device=b) for s in (1, 2) for b in (8, 16)]
    label = "lenet5 digits batch 16, single on 1 device, seed 2, repeat 1"
    assert labels(runs)[runs[3].id] == label
    assert labels([*runs[:1], LENET])[LENET.id] == LENET.label()
    long = dataclasses.replace(LENET, steps=None, epochs=2)
    assert sorted(labels([LENET, long]).values()) == [
        "lenet5 digits batch 64, single on 1 device, epochs 2, repeat 1",
        "lenet5 digits batch 64, single on 1 device, steps 100, repeat 1",
    ]


def test_a_label_names_an_environment_only_where_it_is_not_that_of_the_framework():
    others = [("jax", "jax"), ("jax", "mine"), ("tensorflow", "new")]
    runs = [dataclasses.replace(LENET, framework=f, environment=e) for f, e in others]
    middles = [label.split(", ")[2:-1] for label in labels([LENET, *runs]).values()]
    assert middles == [
        ["framework tensorflow"],
        ["framework jax"],
        ["framework jax", "environment mine"],
        ["framework tensorflow", "environment new"],
    ]


def test_the_order_is_a_seeded_shuffle_interleaved_over_repeats():
    pairs = itertools.product((1, 2, 3), range(1, 9))
    runs = [dataclasses.replace(LENET, repeat=r, batch_per_device=batch) for r, batch in pairs]
    order = shuffled(runs, seed=1)
    assert [run.repeat for run in order] == [1] * 8 + [2] * 8 + [3] * 8
    assert sorted(r.id for r in order) == sorted(r.id for r in runs)
    assert order == shuffled(runs[::-1], seed=1)
    assert order != shuffled(runs, seed=2)
    batches = [[r.batch_per_device for r in order[i : i + 8]] for i in (0, 8, 16)]
    assert batches[0] != batches[1] != batches[2]


def test_a_sentinel_is_a_run_of_its_own_and_a_repeat_of_the_same_combination():
    again = dataclasses.replace(LENET, repeat=3, sentinel=2)
    assert again.id.startswith("lenet5-digits-b64-single-1x1-s2-r3-")
    assert is_sentinel(again.id) and not is_sentinel(LENET.id)
    assert again.combination == LENET.combination is LENET
    for change in ({"repeat": 2}, {"profile": True}):
        assert dataclasses.replace(LENET, **change).combination == LENET
    assert again.label() == "lenet5 digits batch 64, single on 1 device, sentinel 2, repeat 3"
    assert again.flags()[-4:] == ["--repeat", "3", "--sentinel", "2"]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"model": "lenet5", "size": 1}'])
def test_a_run_comes_back_from_its_values_and_what_is_no_run_is_refused(text):
    assert Run.from_json(json.dumps(LENET.values())) == LENET
    with pytest.raises(Error, match="expected the fields of a run as JSON"):
        Run.from_json(text)


def test_a_run_takes_less_memory_than_its_fields_would():
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        runs = [dataclasses.replace(LENET, batch_per_device=size) for size in range(1000)]
        ids = {run.id for run in runs}
        each = (tracemalloc.get_traced_memory()[0] - before) / len(ids)
    finally:
        tracemalloc.stop()
    assert each < 660, f"{each:.0f} bytes a run and its id: does it keep what its class has?"


def test_the_flags_of_a_run_stand_in_a_command_where_it_says_so():
    arguments = ["python", "train.py", FLAGS, "--log", "x"]
    assert LENET.command(arguments) == ["python", "train.py", *LENET.flags(), "--log", "x"]
    assert LENET.command(["train", "a b"]) == ["train", "a b"]
    other = dataclasses.replace(LENET, trainer="mine")
    assert other.command(arguments) == arguments
