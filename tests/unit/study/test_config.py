"""config: which runs a config has, and with what."""

import copy

import pytest

from dlbench.study import config
from dlbench.study.config_schema import ConfigError
from dlbench.trainer import engine
from support.studies.made_studies import BLOCK, STUDY, refused, study

SHORT = BLOCK | {"steps": 5}
DIGITS = BLOCK | {"dataset": "digits"}


def of(made, *names):
    """What the runs of a study have of some fields."""
    return sorted(tuple(getattr(run, name) for name in names) for run in made.runs)


def test_the_default_study_is_valid_and_as_the_readme_says():
    made = config.study(config.read("config.yaml"))
    fields = ("model", "strategy", "devices", "repeat")
    found = [{getattr(run, name) for run in made.runs} for name in fields]
    assert found == [{"lenet5", "cnn12"}, {"single", "mirrored", "horovod"}, {1, 2}, {1, 2, 3}]
    assert {run.dataset for run in made.runs} == {"synthetic", "digits"}
    assert all(left_out.reason for left_out in made.excluded)


def test_every_combination_of_the_lists_becomes_a_run():
    block = SHORT | {"batch_per_device": [8, 16], "precision": ["float32", "bfloat16"]}
    found = of(study(block), "batch_per_device", "precision")
    assert found == [(8, "bfloat16"), (8, "float32"), (16, "bfloat16"), (16, "float32")]
    values = SHORT | {"precision": "float32", "strategy": "mirrored"}
    lists = {key: [value] for key, value in values.items() if key != "name"} | {"name": "block"}
    assert study(values).runs == study(lists).runs


@pytest.mark.parametrize(
    ("rule", "kept", "reason"),
    [
        ({"batch_per_device": 16, "reason": "too big"}, [(8,), (32,)], "too big"),
        # The block leaves the precision at its default.
        ({"batch_per_device": [16, 32], "precision": "float32"}, [(8,)], "excluded in the config"),
    ],
)
def test_excluded_combinations_are_kept_with_their_reason(rule, kept, reason):
    made = study(SHORT | {"batch_per_device": [8, 16, 32], "exclude": [rule]})
    assert of(made, "batch_per_device") == kept
    assert {(left_out.block, left_out.reason) for left_out in made.excluded} == {("block", reason)}
    assert made.excluded[0].values["batch_per_device"] == 16


def test_included_combinations_may_be_lists_and_take_the_single_values_of_their_block():
    added = {"model": "cnn12", "batch_per_device": [16, 32], "precision": "float16"}
    made = study(SHORT | {"batch_per_device": [8, 16], "include": [added]})
    assert of(made, "model", "batch_per_device", "precision", "dataset", "steps") == [
        *(("cnn12", batch, "float16", "synthetic", 5) for batch in (16, 32)),
        *(("lenet5", batch, "float32", "synthetic", 5) for batch in (8, 16)),
    ]


def test_the_same_run_twice_is_refused_with_both_places():
    message = refused(SHORT, SHORT | {"name": "again"})
    assert "matrix[1] (again)" in message and "is already in matrix[0] (block)" in message
    assert "is already in matrix[0] (block)" in refused(SHORT | {"include": [{"model": "lenet5"}]})


def test_a_block_may_have_repeats_of_its_own():
    made = study(SHORT | {"repeats": 3}, BLOCK | {"name": "other", "steps": 6})
    assert of(made, "steps", "repeat") == [(5, 1), (5, 2), (5, 3), (6, 1)]


def test_the_order_of_the_runs_follows_the_seed_and_the_config_stays_as_it_is():
    before = copy.deepcopy(STUDY)
    block = SHORT | {"batch_per_device": list(range(1, 20))}
    orders = [[run.id for run in study(block, seed=seed).runs] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])
    assert before == STUDY


@pytest.mark.parametrize(
    ("strategy", "launcher", "nodes", "fitting"),
    [
        ("multiworker", "mpirun", 2, ["kubernetes", "srun"]),
        ("parameter_server", "horovodrun", 1, ["kubernetes", "local", "srun"]),
        ("horovod", "torchrun", 1, ["flux", "horovodrun", "mpiexec", "mpirun", "srun"]),
    ],
)
def test_a_launcher_whose_processes_would_not_meet_is_refused_with_those_that_work(
    strategy, launcher, nodes, fitting
):
    block = SHORT | {"strategy": strategy, "launcher": launcher, "nodes": nodes}
    output = refused(block)
    assert f"launcher {launcher} does not let the processes of strategy {strategy} find" in output
    assert f"these do: {', '.join(fitting)}. " in output
    for name in fitting:
        assert study(block | {"launcher": name}).runs[0].launcher == name


def test_launcher_and_environment_are_those_of_strategy_and_framework_unless_named():
    two = SHORT | {"devices_per_node": 2, "strategy": "horovod"}
    ddp = two | {"framework": "pytorch", "strategy": "ddp"}
    found = [of(study(block), "launcher") for block in (two, ddp, two | {"launcher": "mpirun"})]
    assert found == [[("horovodrun",)], [("torchrun",)], [("mpirun",)]]
    made = study(SHORT | {"framework": ["tensorflow", "jax", "pytorch"]})
    pairs = [("jax", "jax"), ("pytorch", "pytorch"), ("tensorflow", "train")]
    assert of(made, "framework", "environment") == pairs
    made = study(SHORT | {"environment": ["train", "train-latest"]})
    assert of(made, "environment") == [("train",), ("train-latest",)]
    assert len({run.id for run in made.runs}) == 2


def test_an_environment_of_another_framework_is_refused_and_those_that_fit_are_named():
    assert refused(SHORT | {"environment": "jax"}).endswith(
        ".environment: envs/jax is an environment of jax, and the run is one of tensorflow; "
        "environments with tensorflow: train, train-cuda, train-latest. Frameworks whose "
        "environments differ need a block each"
    )
    # In a container an image of that name may have anything; one built from the folder has not.
    entered = SHORT | {"environment": "jax", "runtime": "apptainer"}
    assert study(entered, images={"jax": {"source": "docker://x/y"}}).runs
    assert "envs/jax is an environment of jax" in refused(entered)


def test_a_strategy_may_be_one_of_any_of_the_frameworks_of_a_block():
    block = SHORT | {"framework": ["tensorflow", "jax"]}
    assert len(study(block | {"strategy": ["single", "mirrored", "sharded"]}).runs) == 6
    message = refused(SHORT | {"framework": "jax", "strategy": "mirrored"})
    assert "no file strategies/mirrored.py" in message


def test_of_two_files_the_last_one_wins_and_neither_is_changed():
    base, over = {"a": {"b": 1, "c": [1, 2]}}, {"a": {"c": [3]}, "d": None}
    before = copy.deepcopy((base, over))
    assert config.merge(base, over) == {"a": {"b": 1, "c": [3]}, "d": None}
    assert (base, over) == before


def test_a_config_that_is_no_mapping_is_refused(tmp_path):
    for text, message in (("[a]", r'expected a mapping, found \["a"\]'), ("# x", "keys: study, m")):
        (tmp_path / "mine.yaml").write_text(text)
        with pytest.raises(ConfigError, match=message):
            config.study(config.read(tmp_path / "mine.yaml"))


def test_copies_are_not_checkpointed():
    block = SHORT | {"copies_per_node": [1, 2]}
    assert of(study(block), "copies_per_node") == [(1,), (2,)]
    message = refused(block, checkpoint_every_min=30)
    assert "copies_per_node and checkpoint_every_min exclude each other" in message
    assert study(block | {"copies_per_node": 1}, checkpoint_every_min=30).runs


def test_a_writer_of_checkpoints_needs_checkpoints_and_its_framework():
    block = SHORT | {"framework": "pytorch", "checkpoint_writer": ["numpy", "dcp_async"]}
    expected = "checkpoint_writer dcp_async writes checkpoints, and there are none: say checkpoint_"
    assert expected in refused(block)
    runs = study(block, checkpoint_every_min=10).runs
    assert sorted("checkpoint_writer" in run.values() for run in runs) == [False, True]
    runs = study(block | {"framework": "jax"}, checkpoint_every_min=10).runs
    (reason,) = filter(None, map(engine.unsupported, runs))
    assert "checkpoint_writer is a field of framework pytorch" in reason


# What runs must learn.


def test_a_gate_is_kept_for_every_run_of_its_block_and_changes_none():
    scores = {"top1": 0.9, "final_loss": 0.5}
    gated = DIGITS | {"epochs": 2, "must_reach": scores, "repeats": 2}
    made = study(gated, SHORT | {"name": "other"})
    of_digits = {run.id for run in made.runs if run.dataset == "digits"}
    assert made.must_reach == dict.fromkeys(of_digits, scores) and len(of_digits) == 2
    del gated["must_reach"]
    assert set(study(gated).runs) <= set(made.runs)


@pytest.mark.parametrize(
    ("block", "scores"),
    [
        (DIGITS | {"epochs": 2}, {"top5": 1.0}),
        (DIGITS | {"steps": 5, "evaluate": "yes"}, {"top1": 0.5}),
        (SHORT, {"final_loss": 1}),
        (BLOCK | {"model": "lstm_ptb", "dataset": "ptb", "epochs": 2}, {"perplexity": 120}),
        (BLOCK | {"model": "unet", "dataset": "blends", "epochs": 2}, {"iou": 0.5}),
    ],
)
def test_scores_that_a_run_will_have_are_accepted(block, scores):
    assert list(study(block | {"must_reach": scores}).must_reach.values()) == [scores]
