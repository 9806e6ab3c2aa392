"""engine: what belongs to a framework and what frameworks share."""

import dataclasses
import types

import pytest

from dlbench.common import plugins
from dlbench.study.runs import Run
from dlbench.trainer import engine, flags

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5)


def run(**fields):
    return dataclasses.replace(RUN, **fields)


def test_both_frameworks_have_engines_and_one_description_of_each_model():
    assert engine.names() == ["jax", "tensorflow"]
    for framework in engine.names():
        assert engine.kind(framework, "models") == "keras/models"
        assert engine.kind(framework, "losses") == f"{framework}/losses"
        assert engine.kind(framework, "tasks") == "tasks"
        constants = plugins.constants(framework, "engine")
        assert {"ENVIRONMENT", "PACKAGES", "OUT_OF_MEMORY", "BY_DESIGN"} <= set(constants)


def test_every_framework_computes_the_loss_of_every_task():
    for framework in engine.names():
        assert plugins.names(f"{framework}/losses") == plugins.names("tasks")


def test_a_framework_that_another_program_trains_with_is_laid_out_as_tensorflows():
    assert engine.kind("mxnet", "strategies") == "tensorflow/strategies"
    assert engine.environment("mxnet") == "train"


def test_a_run_by_hand_has_the_environment_of_its_framework_unless_it_names_one():
    words = ["--model", "lenet5", "--dataset", "synthetic", "--batch-per-device", "8"]
    words += ["--steps", "5", "--log", "x"]
    assert flags.parse(None, words)[0].environment == "train"
    assert flags.parse(None, [*words, "--framework", "jax"])[0].environment == "jax"
    named = flags.parse(None, [*words, "--framework", "jax", "--environment", "mine"])[0]
    assert named.environment == "mine"


@pytest.mark.parametrize(
    ("framework", "strategy", "devices", "there"),
    [
        ("jax", "mirrored", 1, "sharded, single"),
        ("jax", "horovod", 2, "sharded"),
        ("tensorflow", "sharded", 2, "horovod, mirrored, multiworker, parameter_server"),
    ],
)
def test_a_strategy_of_another_framework_is_named_with_those_that_fit(
    framework, strategy, devices, there
):
    fields = {"framework": framework, "strategy": strategy, "devices_per_node": devices}
    options = "cycle_time_ms=1" if strategy == "horovod" else ""
    # A run of a study, and the flags of train.py.
    for asked in (
        run(**fields, strategy_options=options),
        types.SimpleNamespace(**dataclasses.asdict(run(**fields, strategy_options=options))),
    ):
        reason = engine.misplaced(asked)
        assert reason.startswith(f"strategy {strategy} is one of ")
        assert reason.endswith(f"not of {framework}; on these devices {framework} has: {there}")
    layout = engine.strategy_of(run(**fields))
    assert layout.__module__.endswith(f".{strategy}")


def test_a_strategy_of_its_own_framework_is_in_its_place():
    assert engine.misplaced(RUN) is None
    assert engine.misplaced(run(framework="jax", strategy="sharded")) is None
