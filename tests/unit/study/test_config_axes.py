"""config: the keys of a block that are fields of a run, or make some."""

import jsonschema
import pytest

from dlbench.common.run_fields import DECLARED
from dlbench.study import config_schema
from support.studies.made_studies import BLOCK, refused, study

AXES = config_schema.axes()
SHORT = BLOCK | {"steps": 5}
HOROVOD = SHORT | {"strategy": "horovod"}
STRONG = {"name": "strong", "model": "lenet5", "dataset": "synthetic", "steps": 5,
          "strategy": "mirrored"}  # fmt: skip


def test_the_keys_are_the_fields_of_a_config_and_those_that_make_fields():
    fields = {n for n in DECLARED if DECLARED[n].in_config}
    assert set(AXES) == fields | {"global_batch", "parameters"}


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("precision", ["float32"], ["fp8", 1]),
        ("steps", [1, 10**9], [0, 1.5, "max", True, 10**9 + 1]),
        ("batch_per_device", [1, "max"], [0, "most"]),
        ("global_batch", [1], ["max", 0]),
        ("learning_rate", [0.1, 1], [0, "high"]),
        ("xla", [True], ["yes", 1]),
        ("node", ["n[1-8]"], ["n 1"]),
        ("strategy_options", [{"a": 1}], [{}, {"a": []}, "a=1"]),
    ],
)
def test_a_key_takes_one_value_or_a_list_and_refuses_what_is_not_declared(name, right, wrong):
    check = jsonschema.Draft202012Validator(AXES[name])
    assert all(check.is_valid(value) for value in (*right, right))
    assert not any(check.is_valid(value) for value in (*wrong, *([value] for value in wrong), []))


def sizes(made):
    return sorted((run.devices, run.batch_per_device) for run in made.runs)


def test_a_global_batch_is_shared_by_all_devices_of_all_nodes():
    made = study(STRONG | {"global_batch": 64, "devices_per_node": [1, 2, 4]})
    assert sizes(made) == [(1, 64), (2, 32), (4, 16)]
    nodes = {"strategy": "multiworker", "launcher": "srun", "nodes": 3, "devices_per_node": 2}
    assert sizes(study(STRONG | nodes | {"global_batch": [24, 48]})) == [(6, 4), (6, 8)]
    weak = study(STRONG | {"batch_per_device": [64, 32, 16], "devices_per_node": [1, 2, 4]})
    assert {run.id for run in made.runs} < {run.id for run in weak.runs}


def test_a_combination_whose_global_batch_cannot_be_shared_evenly_is_refused_unless_excluded():
    block = STRONG | {"global_batch": [12, 16], "devices_per_node": [1, 3]}
    assert refused(block) == (
        "matrix[0] (strong): a global_batch of 16 cannot be shared evenly by 3 devices; exclude "
        "that combination or choose another global_batch"
    )
    made = study(block | {"exclude": [{"global_batch": 16, "devices_per_node": 3}]})
    assert sizes(made) == [(1, 12), (1, 16), (3, 4)]
    assert [left_out.values["global_batch"] for left_out in made.excluded] == [16]


def test_weak_and_strong_scaling_that_meet_in_one_run_say_so():
    weak = STRONG | {"name": "weak", "batch_per_device": 8, "devices_per_node": [1, 2]}
    strong = STRONG | {"global_batch": 16, "devices_per_node": [1, 2]}
    message = refused(weak, strong)
    assert message.startswith("matrix[1] (strong): lenet5 synthetic batch 8, mirrored on 2 devices")
    assert message.endswith("is already in matrix[0] (weak); exclude it from one of the two")
    made = study(weak, strong | {"exclude": [{"devices_per_node": 2, "reason": "as weak"}]})
    assert sizes(made) == [(1, 8), (1, 16), (2, 8)]


def test_a_list_of_nodes_as_slurm_writes_it_is_one_run_a_node_and_some_can_be_excluded():
    runs = study(SHORT | {"node": ["gpu[08-10]", "login"], "exclude": [{"node": "gpu09"}]}).runs
    assert sorted(run.node for run in runs) == ["gpu08", "gpu10", "login"]
    assert len({run.id for run in runs}) == 3
    assert study(SHORT).runs[0].node is None


def test_the_nodes_of_a_run_on_several_are_one_text_and_one_run_however_they_are_written():
    pairs = HOROVOD | {"launcher": "srun", "nodes": 2}
    (one,) = study(pairs | {"node": "n[1-2]"}).runs
    (same,) = study(pairs | {"node": "n[2,1]"}).runs
    assert (one.node, one.nodes, one.id) == ("n[1-2]", 2, same.id)
    both = study(pairs | {"node": ["n[1-2]", "n[3,5]"]}).runs
    assert sorted(run.node for run in both) == ["n[1-2]", "n[3,5]"]


def test_mappings_of_options_of_a_strategy_are_an_axis_and_may_be_excluded():
    fp16, none = {"compression": "fp16", "cycle_time_ms": 1}, {"gradient_groups": 0}
    excluded = {"strategy_options": none, "batch_per_device": 16}
    options = [{"compression": "none"}, fp16, none]
    block = HOROVOD | {"strategy_options": options, "batch_per_device": [8, 16]}
    runs = study(block | {"exclude": [excluded]}).runs
    texts = ["", "compression=fp16,cycle_time_ms=1.0", "gradient_groups=0"]
    found = sorted((run.batch_per_device, run.strategy_options) for run in runs)
    assert found == [(8, texts[0]), (8, texts[1]), (8, texts[2]), (16, texts[0]), (16, texts[1])]
    assert sum("compression=fp16" in run.label() for run in runs) == 2


def test_a_default_option_that_is_given_is_the_same_run_as_one_left_out():
    (without,) = study(HOROVOD).runs
    for options in ({"cycle_time_ms": 5}, {"cycle_time_ms": 5.0, "timeline": False}):
        (run,) = study(HOROVOD | {"strategy_options": options}).runs
        assert run.id == without.id


def test_any_field_of_a_run_can_be_compared():
    bases = {"copies_per_node": 1, "runtime": "bare", "runtime_options": "", "xla": False}
    bases |= {"learning_rate": 0.01, "strategy": "single"}
    entries = [{"field": field, "base": base} for field, base in bases.items()]
    assert study(SHORT, compare=entries).compare == tuple(entries)
