"""config: what is accepted, what is refused, and in which words."""

import copy
import re
from pathlib import Path

import pytest

from dlbench.common import plugins
from dlbench.run_fields.fields import DECLARED
from dlbench.study import config, config_files, config_schema, runs
from dlbench.study.config_schema import ConfigError
from support.studies.made_studies import BLOCK, STUDY, refused, study


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


@pytest.mark.parametrize(
    ("strategy", "launcher", "nodes", "fitting"),
    [
        ("multiworker", "mpirun", 2, ["srun"]),
        ("multiworker", "mpirun", 1, ["local", "srun"]),
        ("parameter_server", "horovodrun", 1, ["local", "srun"]),
        ("horovod", "local", 1, ["horovodrun", "mpirun", "srun"]),
        ("horovod", "torchrun", 1, ["horovodrun", "mpirun", "srun"]),
    ],
)
def test_a_launcher_whose_processes_would_not_meet_is_refused_with_those_that_work(
    strategy, launcher, nodes, fitting
):
    block = BLOCK | {"steps": 5, "strategy": strategy, "launcher": launcher, "nodes": nodes}
    output = refused(block)
    assert f"launcher {launcher} does not let the processes of strategy {strategy} find" in output
    assert f"these do: {', '.join(fitting)}. " in output
    for name in fitting:
        assert study(block | {"launcher": name}).runs[0].launcher == name


def test_the_environment_is_that_of_the_framework_unless_named():
    block = BLOCK | {"steps": 5, "framework": ["tensorflow", "jax", "pytorch"]}
    assert {run.framework: run.environment for run in study(block).runs} == {
        "tensorflow": "train",
        "jax": "jax",
        "pytorch": "pytorch",
    }
    block = BLOCK | {"steps": 5, "environment": ["train", "train-latest"]}
    runs = study(block).runs
    assert {run.environment for run in runs} == {"train", "train-latest"}
    assert len({run.id for run in runs}) == 2


def test_an_environment_of_another_framework_is_refused_and_those_that_fit_are_named():
    block = BLOCK | {"steps": 5}
    assert refused(block | {"environment": "jax"}).endswith(
        ".environment: envs/jax is an environment of jax, and the run is one of tensorflow; "
        "environments with tensorflow: train, train-cuda, train-latest. Frameworks whose "
        "environments differ need a block each"
    )
    message = refused(block | {"framework": "jax", "environment": "train-latest"})
    assert "envs/train-latest is an environment of tensorflow, and the run is one of jax" in message
    assert "environments with jax: jax, jax-cuda." in message
    assert "pytorch" in refused(block | {"framework": "pytorch", "environment": "train"})
    # In a container an image of that name may have anything; one built from the folder has not.
    entered = block | {"environment": "jax", "runtime": "apptainer"}
    assert study(entered, images={"jax": {"source": "docker://x/y"}}).runs
    assert "envs/jax is an environment of jax" in refused(entered)


def test_a_strategy_may_be_one_of_any_of_the_frameworks_of_a_block():
    block = BLOCK | {"steps": 5, "framework": ["tensorflow", "jax"]}
    runs = study(block | {"strategy": ["single", "mirrored", "sharded"]}).runs
    assert len(runs) == 6
    assert "no file strategies/mirrored.py" in refused(
        BLOCK | {"steps": 5, "framework": "jax", "strategy": "mirrored"}
    )


def test_the_launcher_is_that_of_the_strategy_unless_named():
    two = BLOCK | {"steps": 5, "devices_per_node": 2, "strategy": "horovod"}
    assert study(two).runs[0].launcher == "horovodrun"
    ddp = two | {"framework": "pytorch", "strategy": "ddp"}
    assert study(ddp).runs[0].launcher == "torchrun"
    assert study(two | {"launcher": "mpirun"}).runs[0].launcher == "mpirun"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "lenet6"}, "block).model: no file models/lenet6.py (did you mean 'lenet5'?)"),
        ({"dataset": "digit"}, "did you mean 'digits'?"),
        ({"strategy": "miror"}, "did you mean 'mirrored'?"),
        ({"batch_per_device": 0}, "batch_per_device: expected at least 1, found 0"),
        ({"batch_per_device": "8"}, 'expected a whole number, or max, found "8"'),
        ({"batch_per_device": True}, "expected a whole number or max or a list, found true"),
        ({"augment": 1}, "augment: expected true or false or a list, found 1"),
        ({"batch_per_device": []}, "a list that is not empty"),
        ({"batch_per_device": [8, 8]}, "a list without repetitions"),
        ({"batch_size": 8}, "unknown key 'batch_size'"),
        ({"precision": "float31"}, "did you mean 'float32'?"),
        ({"precision": ["float32", "float31"]}, "precision[1]: expected one of float32"),
        ({"environment": "trian"}, "no folder envs/trian (did you mean 'train'?)"),
        ({"epochs": 2}, "expected either steps or epochs, found both"),
        ({"steps": None}, "steps"),
        (
            {"exclude": [{"model": "cnn12"}]},
            "exclude[0].model: no combination of this block has cnn12",
        ),
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
        ({"history": [[]]}, "history[0]: expected a text, or a mapping with path, found []"),
        ({"repeats": 0}, "a whole number from 1 to 10000, or a mapping with target"),
        ({"repeats": True}, "a whole number from 1 to 10000, or a mapping with target"),
        ({"figures": ["scalling"]}, "did you mean 'scaling'?"),
        ({"time_limit_s": 0}, "time_limit_s: expected more than 0"),
        (
            {"site": STUDY["site"] | {"devices_per_node": 0}},
            "auto, or a whole number from 1 to",
        ),
        ({"site": STUDY["site"] | {"devic": "cpu"}}, "site: unknown key 'devic' (did you mean 'de"),
        ({"site": STUDY["site"] | {"device": "cpi"}}, "auto, cpu, gpu (did you mean 'cpu'?)"),
        ({"data": STUDY["data"] | {"ofline": True}}, "unknown key 'ofline' (did you mean 'offline"),
        ({"data": STUDY["data"] | {"terms_accepted": ["imagnet"]}}, "did you mean 'imagenet'?"),
        ({"data": STUDY["data"] | {"tfrecords": {"imagnet": "/x"}}}, "data.tfrecords: no file dat"),
        ({"study": ""}, "study: expected a name that is not empty and has no /"),
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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [", "line 1: no YAML: "),
        (b"a: 1\n\xff\xfe", "line 2: expected text in UTF-8, found the byte 0xff"),
        (b"a: 1\na: 2", "line 2: the key 'a' is twice in one mapping, first in line 1"),
    ],
)
def test_a_file_that_is_not_yaml_is_named_with_the_line(tmp_path, content, words):
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(f"broken.yaml, {words}")):
        config.read(path)


def test_every_key_is_described():
    def undescribed(part, where):
        for name, value in part.get("properties", {}).items():
            if "description" not in value:
                yield f"{where}.{name}"
            yield from undescribed(value, f"{where}.{name}")

    schema = config_schema.schema()
    assert list(undescribed(schema, "")) == []
    for name, part in schema["$defs"].items():
        assert list(undescribed(part, name)) == []


def test_the_axes_of_the_schema_are_the_fields_of_a_run():
    axes = config_schema.schema()["$defs"]["axes"]["properties"]
    further = {"trainer_parameters", "repeat", "sentinel", "probe"}
    assert set(axes) == set(runs.FIELDS) - further | {"global_batch", "parameters"}
    for name, declared in DECLARED.items():
        if declared.choices and declared.in_config:
            allowed = list(declared.choices)
            assert axes[name]["then"]["enum"] == axes[name]["items"]["enum"] == allowed


def test_checking_changes_nothing_in_the_config():
    before = copy.deepcopy(STUDY)
    study()
    assert before == STUDY


def test_a_name_without_a_file_is_refused_with_all_that_there_are():
    for kind, message in (
        ("keras/models", refused(BLOCK | {"steps": 5, "model": "lenet6"})),
        ("tensorflow/strategies", refused(BLOCK | {"steps": 5, "strategy": "singel"})),
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
    with pytest.raises(ConfigError, match=r"absent\.yaml cannot be read: No such file"):
        config.read(tmp_path / "absent.yaml")


def test_of_two_files_the_last_one_wins_and_neither_is_changed():
    base, over = {"a": {"b": 1, "c": [1, 2]}}, {"a": {"c": [3]}, "d": None}
    before = copy.deepcopy((base, over))
    assert config_files.merge(base, over) == {"a": {"b": 1, "c": [3]}, "d": None}
    assert (base, over) == before


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


# Studies that come with the workflow.

STUDIES = sorted((Path(__file__).parents[3] / "studies").glob("*/config.yaml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.parent.name)
def test_every_study_that_comes_with_the_workflow_is_valid(path):
    made = config.study(config.read("config.yaml", path))
    assert made.name == path.parent.name
    compared = {entry["field"] for entry in made.compare}
    assert all(len({getattr(run, field) for run in made.runs}) > 1 for field in compared)
