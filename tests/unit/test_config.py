"""config: what is accepted, what is refused, and in which words."""

import copy
from pathlib import Path

import pytest
from site_facts import SITE

from dlbench import config, plugins, runs
from dlbench.config import ConfigError

BLOCK = {"name": "block", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 8}
STUDY = config.read(Path(__file__).parents[2] / "config.yaml") | {
    "study": "test",
    "seed": 1,
    "repeats": 1,
    "time_limit_s": 60,
    "site": SITE,
    "matrix": [BLOCK | {"steps": 5}],
    "figures": ["scaling"],
}


def study(*blocks, **changes):
    return config.study(STUDY | ({"matrix": list(blocks)} if blocks else {}) | changes)


def refused(*blocks, **changes):
    with pytest.raises(ConfigError) as error:
        study(*blocks, **changes)
    return str(error.value)


def test_the_default_study_is_valid_and_as_the_readme_says():
    default = config.study(config.read("config.yaml"))
    models = {run.model for run in default.runs}
    assert models == {"lenet5", "cnn12"}
    assert {run.strategy for run in default.runs} == {"single", "mirrored", "horovod"}
    assert {run.devices for run in default.runs} == {1, 2}
    assert {run.repeat for run in default.runs} == {1, 2, 3}
    assert {run.dataset for run in default.runs} == {"synthetic", "digits"}
    assert all(left_out.reason for left_out in default.excluded)


def test_every_combination_of_the_lists_becomes_a_run():
    block = BLOCK | {"steps": 5, "batch_per_device": [8, 16], "precision": ["float32", "bfloat16"]}
    found = {(run.batch_per_device, run.precision) for run in study(block).runs}
    assert found == {(8, "float32"), (8, "bfloat16"), (16, "float32"), (16, "bfloat16")}


def test_excluded_combinations_are_kept_with_their_reason():
    made = study(
        BLOCK
        | {
            "steps": 5,
            "batch_per_device": [8, 16],
            "exclude": [{"batch_per_device": 16, "reason": "too big"}],
        }
    )
    assert [run.batch_per_device for run in made.runs] == [8]
    (left_out,) = made.excluded
    assert (left_out.values["batch_per_device"], left_out.reason) == (16, "too big")


def test_included_combinations_take_the_single_values_of_their_block():
    block = BLOCK | {
        "steps": 5,
        "batch_per_device": [8, 16],
        "include": [{"model": "cnn12", "batch_per_device": 32}],
    }
    added = [run for run in study(block).runs if run.model == "cnn12"]
    assert [(run.batch_per_device, run.dataset, run.steps) for run in added] == [
        (32, "synthetic", 5)
    ]


def test_the_launcher_is_that_of_the_strategy_unless_named():
    two = BLOCK | {"steps": 5, "devices_per_node": 2, "strategy": "horovod"}
    assert study(two).runs[0].launcher == "horovodrun"
    assert study(two | {"launcher": "mpirun"}).runs[0].launcher == "mpirun"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "lenet6"}, "block).model: no file models/lenet6.py (did you mean 'lenet5'?)"),
        ({"dataset": "digit"}, "did you mean 'digits'?"),
        ({"strategy": "miror"}, "did you mean 'mirrored'?"),
        ({"batch_per_device": 0}, "batch_per_device: expected at least 1, found 0"),
        ({"batch_per_device": "8"}, 'expected one integer or a list, found "8"'),
        ({"batch_per_device": True}, "expected one integer or a list, found true"),
        ({"augment": 1}, "augment: expected one boolean or a list, found 1"),
        ({"batch_per_device": []}, "a list that is not empty"),
        ({"batch_per_device": [8, 8]}, "a list without repetitions"),
        ({"batch_size": 8}, "unknown key 'batch_size'"),
        ({"precision": "float31"}, "did you mean 'float32'?"),
        ({"precision": ["float32", "float31"]}, "precision[1]: expected one of float32"),
        ({"environment": "trian"}, "no folder envs/trian (did you mean 'train'?)"),
        ({"epochs": 2}, "expected either steps or epochs, found both"),
        ({"steps": None}, "steps"),
        ({"exclude": [{"model": "cnn12"}]}, "is a value misspelt?"),
        ({"exclude": [{"model": "lenet5"}]}, "the matrix is empty: all 1 combinations"),
        ({"include": [{"model": "lenet6"}]}, "include[0].model: no file models/lenet6.py"),
    ],
)
def test_a_mistake_in_a_block_is_named_with_what_is_allowed(change, message):
    assert message in refused(BLOCK | {"steps": 5} | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"matrix": []}, "matrix: expected a list that is not empty"),
        ({"matrx": []}, "unknown key 'matrx' (did you mean 'matrix'?)"),
        ({"repeats": 0}, "repeats: expected a number of at least 1, or target_interval"),
        ({"repeats": True}, "repeats: expected a number of at least 1, or target_interval"),
        ({"figures": ["scalling"]}, "did you mean 'scaling'?"),
        ({"time_limit_s": 0}, "time_limit_s: expected more than 0"),
        ({"site": STUDY["site"] | {"devices_per_node": 0}}, "auto, or a number of at least 1"),
        ({"site": STUDY["site"] | {"devic": "cpu"}}, "site: unknown key 'devic' (did you mean 'de"),
        ({"site": STUDY["site"] | {"device": "cpi"}}, "auto, cpu, gpu (did you mean 'cpu'?)"),
        ({"data": STUDY["data"] | {"ofline": True}}, "unknown key 'ofline' (did you mean 'offline"),
        ({"data": STUDY["data"] | {"terms_accepted": ["imagnet"]}}, "did you mean 'imagenet'?"),
        ({"data": STUDY["data"] | {"tfrecords": {"imagnet": "/x"}}}, "data.tfrecords: no file dat"),
        ({"study": ""}, "study: expected a text that is not empty"),
        ({"matrix": None}, "matrix: expected a list, found null"),
        ({"site": {"name": "here"}}, "site: missing keys: device, devices_per_node"),
    ],
)
def test_a_mistake_in_the_study_is_named_with_what_is_allowed(change, message):
    assert message in refused(**change)


def test_all_mistakes_are_named_at_once():
    message = refused(BLOCK | {"batch": 1}, repeats=0)
    assert "batch" in message
    assert "repeats" in message


def test_neither_steps_nor_epochs_is_a_mistake():
    assert "found neither" in refused(BLOCK)


def test_epochs_need_data_and_training():
    epochs = {k: v for k, v in BLOCK.items()} | {"epochs": 1}
    assert "dataset synthetic has no epochs" in refused(epochs)
    assert "mode forward takes steps" in refused(epochs | {"dataset": "digits", "mode": "forward"})


def test_the_same_run_in_two_blocks_is_refused():
    message = refused(BLOCK | {"steps": 5}, BLOCK | {"steps": 5, "name": "again"})
    assert "matrix[1] (again)" in message
    assert "is already in matrix[0] (block)" in message


def test_a_second_file_replaces_the_matrix_as_a_whole(tmp_path):
    (tmp_path / "mine.yaml").write_text("matrix: [{name: mine}]\nsite: {name: there}\n")
    merged = config.read("config.yaml", tmp_path / "mine.yaml")
    assert merged["matrix"] == [{"name": "mine"}]
    assert merged["site"] == config.read("config.yaml")["site"] | {"name": "there"}


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe"])
def test_a_file_that_is_not_yaml_is_named(tmp_path, content):
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.yaml cannot be read as YAML"):
        config.read(path)


def test_every_key_is_described():
    def undescribed(part, where):
        for name, value in part.get("properties", {}).items():
            if "description" not in value:
                yield f"{where}.{name}"
            yield from undescribed(value, f"{where}.{name}")

    schema = config.schema()
    assert list(undescribed(schema, "")) == []
    for name, part in schema["$defs"].items():
        assert list(undescribed(part, name)) == []


def test_the_axes_of_the_schema_are_the_fields_of_a_run():
    axes = config.schema()["$defs"]["axes"]["properties"]
    assert set(axes) == set(runs.FIELDS) - {"repeat"} | {"global_batch"}
    for name, allowed in (
        ("mode", runs.MODES),
        ("precision", runs.PRECISIONS),
        ("optimizer", runs.OPTIMIZERS),
        ("cache", runs.CACHES),
    ):
        assert axes[name]["then"]["enum"] == axes[name]["items"]["enum"] == list(allowed)


def test_checking_changes_nothing_in_the_config():
    before = copy.deepcopy(STUDY)
    study()
    assert before == STUDY


def test_a_name_without_a_file_is_refused_with_all_that_there_are():
    for kind, message in (
        ("models", refused(BLOCK | {"steps": 5, "model": "lenet6"})),
        ("strategies", refused(BLOCK | {"steps": 5, "strategy": "singel"})),
        ("figures", refused(figures=["scalling"])),
    ):
        assert f"; there are: {', '.join(plugins.names(kind))}" in message


def test_one_value_and_a_list_of_one_are_the_same_runs():
    values = BLOCK | {"steps": 5, "precision": "float32", "strategy": "mirrored"}
    lists = {key: [value] for key, value in values.items() if key != "name"} | {"name": "block"}
    assert study(values).runs == study(lists).runs


def test_a_block_may_have_repeats_of_its_own():
    made = study(BLOCK | {"steps": 5, "repeats": 3}, BLOCK | {"name": "other", "steps": 6})
    repeats = {steps: [r.repeat for r in made.runs if r.steps == steps] for steps in (5, 6)}
    assert repeats == {5: [1, 2, 3], 6: [1]}


def test_an_exclusion_may_list_values_and_needs_no_reason():
    block = BLOCK | {"steps": 5, "batch_per_device": [8, 16, 32], "precision": ["float32"]}
    made = study(block | {"exclude": [{"batch_per_device": [16, 32], "precision": "float32"}]})
    assert [run.batch_per_device for run in made.runs] == [8]
    assert {left_out.reason for left_out in made.excluded} == {"excluded in the config"}
    assert {left_out.block for left_out in made.excluded} == {"block"}


def test_an_exclusion_matches_values_that_the_block_leaves_at_their_default():
    block = BLOCK | {"steps": 5, "batch_per_device": [8, 16]}
    made = study(block | {"exclude": [{"batch_per_device": 8, "precision": "float32"}]})
    assert [run.batch_per_device for run in made.runs] == [16]


def test_included_combinations_may_be_lists_too():
    made = study(
        BLOCK | {"steps": 5, "include": [{"batch_per_device": [16, 32], "precision": "float16"}]}
    )
    found = {(run.batch_per_device, run.precision) for run in made.runs}
    assert found == {(8, "float32"), (16, "float16"), (32, "float16")}


def test_an_included_combination_that_is_there_already_is_refused():
    message = refused(BLOCK | {"steps": 5, "include": [{"model": "lenet5"}]})
    assert "is already in matrix[0] (block)" in message


@pytest.mark.parametrize("part", ["exclude", "include"])
def test_a_misspelt_key_is_named_with_its_place(part):
    message = refused(BLOCK | {"steps": 5, part: [{"modl": "lenet5"}]})
    assert f"matrix[0] (block).{part}[0]: unknown key 'modl' (did you mean 'model'?)" in message


def test_a_model_and_data_of_another_kind_are_refused():
    message = refused(BLOCK | {"steps": 5, "dataset": "ptb"})
    assert "lenet5 learns classification and needs data of the kind image" in message
    assert "ptb is of the kind text" in message


def test_the_order_of_the_runs_follows_the_seed():
    block = BLOCK | {"steps": 5, "batch_per_device": list(range(1, 20))}
    orders = [[run.id for run in study(block, seed=seed).runs] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


def test_a_config_that_is_no_mapping_is_refused(tmp_path):
    (tmp_path / "list.yaml").write_text("[a]")
    with pytest.raises(ConfigError, match=r'expected a mapping, found \["a"\]'):
        config.study(config.read(tmp_path / "list.yaml"))
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    with pytest.raises(ConfigError, match="missing keys: study, matrix"):
        config.study(config.read(tmp_path / "empty.yaml"))


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.yaml cannot be read as YAML: .*No such file"):
        config.read(tmp_path / "absent.yaml")


def test_of_two_files_the_last_one_wins_and_neither_is_changed():
    base, over = {"a": {"b": 1, "c": [1, 2]}}, {"a": {"c": [3]}, "d": None}
    before = copy.deepcopy((base, over))
    assert config._merge(base, over) == {"a": {"b": 1, "c": [3]}, "d": None}
    assert (base, over) == before


# The global batch.

STRONG = {"name": "strong", "model": "lenet5", "dataset": "synthetic", "steps": 5,
          "strategy": "mirrored"}  # fmt: skip


def sizes(made):
    return sorted((run.devices, run.batch_per_device) for run in made.runs)


def test_a_global_batch_is_shared_by_all_devices():
    made = study(STRONG | {"global_batch": 64, "devices_per_node": [1, 2, 4]})
    assert sizes(made) == [(1, 64), (2, 32), (4, 16)]
    assert {run.global_batch for run in made.runs} == {64}


def test_devices_of_all_nodes_share_a_global_batch():
    nodes = {"strategy": "multiworker", "launcher": "srun", "nodes": 3, "devices_per_node": 2}
    assert sizes(study(STRONG | nodes | {"global_batch": [24, 48]})) == [(6, 4), (6, 8)]


def test_a_global_batch_makes_the_same_run_as_its_share():
    strong = study(STRONG | {"global_batch": 16, "devices_per_node": 2})
    weak = study(STRONG | {"batch_per_device": 8, "devices_per_node": 2})
    assert strong.runs == weak.runs
    assert strong.runs[0].id == weak.runs[0].id


def test_a_global_batch_that_cannot_be_shared_evenly_is_refused():
    message = refused(STRONG | {"global_batch": 16, "devices_per_node": [1, 3]})
    assert message == (
        "matrix[0] (strong): a global_batch of 16 cannot be shared evenly by 3 devices; exclude "
        "that combination or choose another global_batch"
    )


def test_the_combination_that_cannot_be_shared_may_be_excluded():
    block = STRONG | {"global_batch": [12, 16], "devices_per_node": [1, 3]}
    made = study(block | {"exclude": [{"global_batch": 16, "devices_per_node": 3}]})
    assert sizes(made) == [(1, 12), (1, 16), (3, 4)]
    assert [left_out.values["global_batch"] for left_out in made.excluded] == [16]


@pytest.mark.parametrize(
    ("change", "found"), [({"global_batch": 8, "batch_per_device": 8}, "both"), ({}, "neither")]
)
def test_either_batch_is_given(change, found):
    message = refused(STRONG | change)
    assert message == (
        f"matrix[0] (strong): expected either batch_per_device or global_batch, found {found}"
    )


@pytest.mark.parametrize("value", [0, "8", [], True])
def test_a_global_batch_is_a_number(value):
    assert "(strong).global_batch: expected" in refused(STRONG | {"global_batch": value})


def test_weak_and_strong_scaling_that_meet_in_one_run_say_so():
    weak = STRONG | {"name": "weak", "batch_per_device": 8, "devices_per_node": [1, 2]}
    strong = STRONG | {"global_batch": 16, "devices_per_node": [1, 2]}
    message = refused(weak, strong)
    assert message.startswith("matrix[1] (strong): lenet5 synthetic batch 8, mirrored on 2 devices")
    assert message.endswith("is already in matrix[0] (weak); exclude it from one of the two")
    made = study(weak, strong | {"exclude": [{"devices_per_node": 2, "reason": "as weak"}]})
    assert sizes(made) == [(1, 8), (1, 16), (2, 8)]


# Options of strategies.

HOROVOD = BLOCK | {"steps": 5, "strategy": "horovod"}


def test_options_of_a_strategy_are_a_mapping():
    (run,) = study(HOROVOD | {"strategy_options": {"cycle_time_ms": 1, "compression": "fp16"}}).runs
    assert run.strategy_options == "compression=fp16,cycle_time_ms=1.0"
    assert "compression=fp16" in run.label()


def test_several_mappings_of_options_are_an_axis():
    options = [{"compression": "none"}, {"compression": "fp16"}, {"gradient_groups": 0}]
    made = study(HOROVOD | {"strategy_options": options, "batch_per_device": [8, 16]})
    found = sorted((run.batch_per_device, run.strategy_options) for run in made.runs)
    texts = ["", "compression=fp16", "gradient_groups=0"]
    assert found == [(batch, text) for batch in (8, 16) for text in texts]


def test_a_default_that_is_given_is_the_same_run_as_one_left_out():
    (without,) = study(HOROVOD).runs
    for options in ({"cycle_time_ms": 5}, {"cycle_time_ms": 5.0, "timeline": False}):
        (run,) = study(HOROVOD | {"strategy_options": options}).runs
        assert run.id == without.id
    message = refused(HOROVOD | {"strategy_options": [{"timeline": False}, {"cycle_time_ms": 5}]})
    assert "is already in matrix[0] (block)" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cycle_time": 1}, "horovod has no option 'cycle_time' (did you mean 'cycle_time_ms'?)"),
        ({"compression": "fp8"}, "option compression: expected one of none, fp16, found 'fp8'"),
        ({"gradient_groups": -1}, "expected a whole number of at least 0, found -1"),
        ([{"timeline": True}, {"timeline": "yes"}], "expected true or false, found 'yes'"),
    ],
)
def test_an_option_that_cannot_be_is_named_with_its_place(options, message):
    found = refused(HOROVOD | {"strategy_options": options})
    assert found.startswith("matrix[0] (block).strategy_options: strategy")
    assert message in found


@pytest.mark.parametrize("options", ["cycle_time_ms=1", {}, [], [{}], {"timeline": None}])
def test_options_in_another_form_are_refused(options):
    assert "strategy_options" in refused(HOROVOD | {"strategy_options": options})


def test_options_count_for_their_strategy_only():
    message = refused(
        HOROVOD | {"strategy": ["horovod", "mirrored"], "strategy_options": {"timeline": True}}
    )
    assert "strategy mirrored has no option 'timeline'; there are: none" in message


def test_a_mapping_of_options_may_be_excluded():
    options = [{"compression": "none"}, {"compression": "fp16"}]
    made = study(
        HOROVOD
        | {"strategy_options": options, "exclude": [{"strategy_options": {"compression": "fp16"}}]}
    )
    assert [run.strategy_options for run in made.runs] == [""]


# The learning gate.

LEARNS = BLOCK | {"dataset": "digits", "epochs": 2}


def test_a_gate_is_kept_for_every_run_of_its_block():
    made = study(
        LEARNS | {"must_reach": {"top1": 0.9, "final_loss": 0.5}, "repeats": 2},
        BLOCK | {"name": "other", "steps": 5},
    )
    gated = {run.id for run in made.runs if run.dataset == "digits"}
    assert made.must_reach == {run_id: {"top1": 0.9, "final_loss": 0.5} for run_id in gated}
    assert len(gated) == 2


def test_a_gate_changes_no_run():
    assert study(LEARNS).runs == study(LEARNS | {"must_reach": {"top1": 0.9}}).runs


@pytest.mark.parametrize(
    "change",
    [
        {"must_reach": {"top5": 1.0}},
        {"epochs": None, "steps": 5, "evaluate": "yes", "must_reach": {"top1": 0.5}},
        {"epochs": None, "steps": 5, "must_reach": {"final_loss": 1}},
        {"model": "lstm_ptb", "dataset": "ptb", "must_reach": {"perplexity": 120}},
        {"model": "unet", "dataset": "blends", "must_reach": {"iou": 0.5}},
    ],
)
def test_scores_that_a_run_will_have_are_accepted(change):
    block = {key: value for key, value in (LEARNS | change).items() if value is not None}
    made = study(block)
    assert list(made.must_reach.values()) == [change["must_reach"]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"must_reach": {"iou": 0.5}}, "must_reach: lenet5 has no iou; it has: top1, top5"),
        ({"must_reach": {"top2": 0.5}}, "must_reach: unknown key 'top2' (did you mean 'top"),
        ({"must_reach": {}}, "must_reach: expected at least one key"),
        ({"must_reach": {"top1": "0.9"}}, 'must_reach.top1: expected one number, found "0.9"'),
        (
            {"epochs": None, "steps": 5, "must_reach": {"top1": 0.9}},
            "must_reach: top1 needs an evaluation; give epochs, or evaluate: yes",
        ),
        (
            {"epochs": None, "steps": 5, "mode": "forward", "must_reach": {"top1": 0.9}},
            "must_reach: top1 needs an evaluation",
        ),
    ],
)
def test_scores_that_a_run_will_not_have_are_refused(change, message):
    block = {key: value for key, value in (LEARNS | change).items() if value is not None}
    assert f"matrix[0] (block).{message}" in refused(block)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "dataset synthetic has no held-out items to evaluate"),
        ({"dataset": "digits", "mode": "forward"}, "mode forward learns nothing that could be"),
    ],
)
def test_an_evaluation_needs_items_and_learning(change, message):
    assert message in refused(BLOCK | {"steps": 5, "evaluate": "yes"} | change)
    assert study(BLOCK | {"steps": 5, "evaluate": "no"} | change)


# Models of the user.

OWN = 'TASK = "classification"\nINPUT_SHAPE = (32, 32, 1)\nCLASSES = 10\n'


@pytest.fixture
def own(tmp_path):
    yield tmp_path / "models"
    plugins.use_folder("models")


def models(folder, **files):
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return str(folder)


def test_a_model_of_the_user_is_found_beside_ours(own):
    folder = models(own, mine=OWN)
    made = study(BLOCK | {"steps": 5, "model": ["mine", "lenet5"]}, model_folder=folder)
    assert {run.model for run in made.runs} == {"mine", "lenet5"}
    assert made.model_folder == folder
    assert "mine" in plugins.names("models")


def test_without_the_folder_the_model_is_gone_again(own):
    study(BLOCK | {"steps": 5, "model": "mine"}, model_folder=models(own, mine=OWN))
    assert "no file models/mine.py" in refused(BLOCK | {"steps": 5, "model": "mine"})
    assert "mine" not in plugins.names("models")


def test_a_misspelt_model_is_named_with_the_nearest_of_both(own):
    folder = models(own, mine=OWN)
    message = refused(BLOCK | {"steps": 5, "model": "mien"}, model_folder=folder)
    assert "no file models/mien.py (did you mean 'mine'?)" in message


def test_a_folder_of_models_that_is_missing_is_named(own):
    assert refused(model_folder=str(own)) == (
        f"model_folder: {own}: expected a folder with models of your own, found none"
    )


def test_a_model_of_the_user_may_not_have_one_of_our_names(own):
    folder = models(own, lenet5=OWN)
    assert refused(model_folder=folder) == (
        f"model_folder: {own}/lenet5.py: there is a file models/lenet5.py of ours; choose another "
        "name"
    )
    assert study().runs[0].model == "lenet5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('TASK = "classifying"\n', "no file tasks/classifying.py (did you mean 'classification'"),
        ("", "TASK of models/mine.py: no file tasks/None.py"),
    ],
)
def test_a_model_without_a_task_that_there_is_is_named(own, text, message):
    folder = models(own, mine=text)
    assert message in refused(BLOCK | {"steps": 5, "model": "mine"}, model_folder=folder)


def test_copies_are_not_checkpointed():
    block = BLOCK | {"steps": 5, "copies_per_node": [1, 2]}
    assert [run.copies_per_node for run in study(block).runs] in ([1, 2], [2, 1])
    assert "copies_per_node and checkpoint_every_min exclude each other" in refused(
        block, checkpoint_every_min=30
    )
    assert study(block | {"copies_per_node": 1}, checkpoint_every_min=30).runs


@pytest.mark.parametrize("value", [0, -1, "2", 1.5, True, []])
def test_copies_are_a_number_of_at_least_one(value):
    assert "copies_per_node: expected" in refused(BLOCK | {"steps": 5, "copies_per_node": value})


# Comparisons.


COMPARED = BLOCK | {"steps": 5, "copies_per_node": [1, 2]}


@pytest.mark.parametrize(
    ("field", "base"),
    [("copies_per_node", 1), ("runtime", "bare"), ("runtime_options", ""), ("xla", False),
     ("learning_rate", 0.01), ("strategy", "single")],
)  # fmt: skip
def test_any_field_of_a_run_can_be_compared(field, base):
    entry = {"field": field, "base": base}
    assert study(COMPARED, compare=[entry]).compare == (entry,)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"field": "runtim", "base": "bare"},
            "compare[0].field: a run has no field 'runtim' (did you mean 'runtime'?); there are: m",
        ),
        ({"field": "repeat", "base": 1}, "a run has no field 'repeat'"),
        (
            {"field": "runtime", "base": "bar"},
            "compare[0].base: no run has the runtime 'bar' (did you mean 'bare'?); there are: 'bar",
        ),
        (
            {"field": "copies_per_node", "base": 3},
            "no run has the copies_per_node 3; there are: 1, 2",
        ),
        ({"field": "copies_per_node", "base": True}, "no run has the copies_per_node True"),
        ({"field": "xla", "base": 0}, "no run has the xla 0; there are: False"),
        ({"field": "runtime"}, "compare[0]: missing key: base"),
        ({"field": "runtime", "base": None}, "compare[0].base: expected one string or one number"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused(entry, message):
    assert message in refused(COMPARED, compare=[entry])


def test_a_base_that_is_several_conditions_is_refused():
    options = [{"cycle_time_ms": 2}, {"cycle_time_ms": 3}]
    horovod = BLOCK | {"steps": 5, "strategy": "horovod", "devices_per_node": 2}
    message = refused(
        horovod | {"strategy_options": options},
        compare=[{"field": "strategy", "base": "horovod"}],
    )
    assert "horovod is no single condition" in message
    assert "cycle_time_ms=2" in message
    assert "compare strategy_options instead" in message


def test_the_same_comparison_twice_is_refused():
    entry = {"field": "runtime", "base": "bare"}
    assert "compare: expected a list without repetitions" in refused(compare=[entry, entry])


# Studies that come with the workflow.

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*/config.yaml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.parent.name)
def test_every_study_that_comes_with_the_workflow_is_valid(path):
    made = config.study(config.read("config.yaml", path))
    assert made.name == path.parent.name
    compared = {entry["field"] for entry in made.compare}
    assert all(len({getattr(run, field) for run in made.runs}) > 1 for field in compared)
