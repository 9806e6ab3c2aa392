"""Every model is trained a step under strategies, the fully sharded one with small units."""

import dataclasses
import math
import subprocess

import pytest

from dlbench.common import plugins
from dlbench.study.runs import Run
from dlbench.trainer import engine
from support.machines.paths import REPOSITORY
from support.trainers.training_runs import command_of

PROGRAM = REPOSITORY / "tests/support/trainers/model_steps.py"
SEVERAL = {"launcher": "local", "devices_per_node": 2}
HOW = {
    ("tensorflow", "mirrored"): {"devices_per_node": 2},
    ("tensorflow", "horovod"): {"launcher": "horovodrun", "devices_per_node": 2},
    ("tensorflow", "multiworker"): SEVERAL,
    ("tensorflow", "parameter_server"): SEVERAL,
    ("jax", "sharded"): {"devices_per_node": 2},
    ("pytorch", "ddp"): SEVERAL,
    ("pytorch", "fsdp"): {**SEVERAL, "strategy_options": "unit_parameters=1000"},
    ("pytorch", "hsdp"): {**SEVERAL, "strategy_options": "shard_size=1"},
    ("pytorch", "tensor_parallel"): SEVERAL,
}


@pytest.mark.parametrize("framework", ["tensorflow", "pytorch", "jax"])
def test_every_strategy_of_several_devices_is_tried(framework):
    tried = {strategy for name, strategy in HOW if name == framework}
    assert tried == set(plugins.names(f"{framework}/strategies")) - {"single"}


@pytest.mark.parametrize(("framework", "strategy"), HOW)
def test_every_model_is_trained_a_step(framework, strategy, python, tmp_path):
    how = {"framework": framework, "strategy": strategy, **HOW[framework, strategy]}
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=2, steps=1, **how)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in how.items()]
    command = command_of(run, [python(framework), PROGRAM, tmp_path, *flags], python(framework))
    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    lines = [line.rpartition("]<stdout>:")[2].split() for line in finished.stdout.splitlines()]
    losses = {}
    for name, loss in (line for line in lines if len(line) == 2):
        losses.setdefault(name, []).append(float(loss))
    processes = max(1, engine.strategy_of(run).processes_per_node(run))
    if strategy == "parameter_server":
        processes = 1  # the others serve the one that trains
    fitting = [
        name
        for name in plugins.names(engine.plugin_kind(framework, "models"))
        if not engine.strategy_of(run).unsupported(dataclasses.replace(run, model=name))
    ]
    assert set(losses) == set(fitting) > {"gpt_tiny"}
    for name in fitting:
        assert len(losses[name]) == processes, name
        assert all(map(math.isfinite, losses[name])), name
