"""PyTorch's fully sharded strategy: each device has a part of the weights."""

import signal
import subprocess

import numpy as np
import pytest

from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY
from support.trainers.framework_runs import (
    ON_DIGITS,
    PYTORCH,
    command_of,
    digests,
    losses,
    mean_losses,
    steps_of,
    stopped,
)
from support.trainers.training_runs import TRAIN, ended, events

FSDP = {**PYTORCH.two_processes, "strategy": "fsdp"}
PARTED = "unit_parameters=10000"  # of LeNet-5: one layer by itself, and the others
FRAMEWORK = PYTORCH  # of the fixtures


@pytest.fixture(scope="module")
def torch(own):
    return own


def test_parts_train_and_are_evaluated_as_one_device_with_all(torch, digits, one_device, tmp_path):
    log = tmp_path / "train.jsonl"
    options = f"{PARTED},reshard_after_forward=False"
    fields = {**ON_DIGITS, "evaluate": "yes", "strategy_options": options}
    PYTORCH.trained(log, torch, digits, steps=20, **fields, **FSDP)
    assert mean_losses(log) == pytest.approx(losses(one_device), rel=1e-4)
    scores, wanted = ([e["loss"] for e in events(each, "eval")] for each in (log, one_device))
    assert len(scores) == 3
    assert scores == pytest.approx(wanted, rel=1e-4)
    # Each rank gathers all weights for its digest.
    assert len(digests(log)) == 2
    assert len(set(digests(log))) == 1
    assert events(log, "run_start")[0]["parameters"] == 61_706


def test_a_stopped_run_goes_on_from_the_parts_of_its_ranks_bit_for_bit(
    torch, small, digits, tmp_path
):
    fields = {**PYTORCH.fields, **ON_DIGITS, **FSDP, "model": "small_model", "steps": 120,
              "optimizer": "adam", "precision": "float16"}  # fmt: skip
    whole, parted = tmp_path / "whole" / "train.jsonl", tmp_path / "parted" / "train.jsonl"
    PYTORCH.trained(whole, torch, digits, small, **fields)
    parted.parent.mkdir()
    run, folder = Run(**fields), tmp_path / "checkpoint"
    words = [torch, TRAIN, *run.flags(), "--data", digits, "--log", parted, *small]
    command = command_of(run, [*words, "--checkpoint", folder], torch)
    assert "with a checkpoint after step" in stopped(command, run, parted, 20, signal.SIGTERM)[1]
    kept = [np.load(path) for path in sorted(folder.glob("step-*/rank*.npz"))]
    sizes = [arrays["5.weight:0"].shape for arrays in kept]  # of the dense layer
    assert sizes == [(5, 784), (5, 784)]
    assert ended(command, run).returncode == 0
    assert 20 <= events(parted, "resume")[0]["step"] < 120
    assert steps_of(parted) == steps_of(whole)
    assert digests(parted) == digests(whole)


@pytest.mark.parametrize(("model", "mode"), [("unet", "train"), ("lstm_ptb", "forward_backward")])
def test_lists_of_modules_and_recurrent_layers_can_be_parted(torch, tmp_path, model, mode):
    found = []
    for name, how in {"whole": {"strategy": "ddp"}, "parts": {"strategy_options": PARTED}}.items():
        log = tmp_path / name / "train.jsonl"
        fields = {**FSDP, "model": model, "mode": mode, "batch_per_device": 2, "steps": 3}
        PYTORCH.trained(log, torch, **{**fields, "warmup_steps": 0, **how})
        found.append(mean_losses(log))
    assert found[1] == pytest.approx(found[0], rel=1e-4)


SCALED = """
import torch
from torch import nn

TASK, INPUT_SHAPE, CLASSES = "classification", (28, 28, 1), 10


class Scaled(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))
        self.gain = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return self.gain * self.layers(x)


def build(input_shape=INPUT_SHAPE, classes=CLASSES):
    height, width, channels = input_shape
    return Scaled(height * width * channels, classes)
"""


def test_a_scalar_parameter_is_refused_by_its_name_with_what_to_do(torch, tmp_path):
    (tmp_path / "scaled.py").write_text(SCALED)
    flags = ["--model-folder", str(tmp_path)]
    said = PYTORCH.refused(tmp_path / "train.jsonl", torch, flags, model="scaled", **FSDP)
    assert "strategy fsdp divides each weight along its first axis, and gain has none" in said
    assert "torch.ones(1)" in said


UNITS = """
import sys
sys.path.insert(0, "workflow_scripts")
from torch import nn
from dlbench.trainer.pytorch.strategies.fsdp import _units

class Tied(nn.Module):  # an output layer that has the weights of the embedding
    def __init__(self):
        super().__init__()
        self.body = Body()
        self.out = nn.Linear(8, 50, bias=False)
        self.out.weight = self.body.words.weight
    def forward(self, x):
        return self.out(self.body(x))

class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.rows = nn.ParameterList([nn.Parameter(nn.Linear(50, 8).weight.detach())])
        self.blocks = nn.ModuleDict({"a": nn.Linear(20, 20), "b": nn.Linear(2, 2)})
    def forward(self, x):
        return x

model = Tied()
names = {module: name for name, module in model.named_modules()}
print([names[unit] for unit in _units(model, 100)])
"""


def test_what_others_may_use_and_what_is_never_called_are_no_units(torch):
    program = [torch, "-c", UNITS]
    found = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['body.blocks.a']"
