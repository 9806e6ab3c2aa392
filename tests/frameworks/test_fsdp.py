"""PyTorch's fully sharded strategy: each device holds a shard of each weight."""

import signal
import subprocess

import numpy as np
import pytest

from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY
from support.trainers import ranks
from support.trainers.framework_runs import (
    ON_DIGITS,
    PYTORCH,
    digests,
    losses,
    mean_losses,
    steps_of,
    stopped,
)
from support.trainers.training_runs import TRAIN, command_of, ended, events

FSDP = {**PYTORCH.two_processes, "strategy": "fsdp"}
PARTED = "unit_parameters=10000"  # of LeNet-5: one layer by itself, and the others
FRAMEWORK = PYTORCH  # of the fixtures


@pytest.mark.ci
def test_parts_train_and_are_evaluated_as_one_device_with_all(own, digits, one_device, tmp_path):
    log = tmp_path / "train.jsonl"
    options = f"{PARTED},reshard_after_forward=False"
    fields = {**ON_DIGITS, "evaluate": "yes", "strategy_options": options}
    PYTORCH.trained(log, own, digits, steps=20, **fields, **FSDP)
    assert mean_losses(log) == pytest.approx(losses(one_device), rel=1e-4)
    scores, wanted = ([e["loss"] for e in events(each, "eval")] for each in (log, one_device))
    assert len(scores) == 3
    assert scores == pytest.approx(wanted, rel=1e-4)
    # Each rank gathers all weights for its digest.
    assert len(digests(log)) == 2
    assert len(set(digests(log))) == 1
    assert events(log, "run_start")[0]["parameters"] == 61_706


@pytest.mark.parametrize(
    ("writer", "fields"),
    [
        ("numpy", {}),
        ("dcp", {"strategy": "tensor_parallel", "model": "vit_tiny", "precision": "bfloat16",
                 "steps": 60}),
        ("dcp_async", {}),
    ],
)  # fmt: skip
def test_a_stopped_run_goes_on_from_the_parts_of_its_ranks_bit_for_bit(
    own, small, digits, tmp_path, writer, fields
):
    how = {**PYTORCH.fields, **ON_DIGITS, **FSDP, "model": "small_model", "steps": 120}
    fields = {**how, "optimizer": "adam", "precision": "float16", "checkpoint_writer": writer,
              **fields}  # fmt: skip
    whole, parted = tmp_path / "whole" / "train.jsonl", tmp_path / "parted" / "train.jsonl"
    PYTORCH.trained(whole, own, digits, small, **fields)
    parted.parent.mkdir()
    run, folder = Run(**fields), tmp_path / "checkpoint"
    words = [own, TRAIN, *run.flags(), "--data", digits, "--log", parted, *small]
    command = command_of(run, [*words, "--checkpoint", folder], own)
    command += ["--checkpoint-every-min", "0.005"] * (writer != "numpy")
    assert "with a checkpoint after step" in stopped(command, run, parted, 20, signal.SIGTERM)[1]
    if writer == "numpy":
        kept = [np.load(path) for path in sorted(folder.glob("step-*/rank*.npz"))]
        sizes = [arrays["5.weight:0"].shape for arrays in kept]  # of the dense layer
        assert sizes == [(5, 784), (5, 784)]
    else:
        (latest,) = folder.glob("step-*")
        assert len(list(latest.glob("*.distcp"))) == 2 and not list(latest.glob("*.npz"))
        assert events(parted, "checkpoint_written")[-1]["bytes"] > 2 * 4 * 3 * 5 * 784
    finished = ended(command, run)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert 20 <= events(parted, "resume")[0]["step"] < 120
    assert steps_of(parted) == steps_of(whole)
    assert digests(parted) == digests(whole)


@pytest.mark.parametrize(
    ("fields", "tolerance"),
    [
        ({"model": "gpt_tiny", "optimizer": "adamw", "weight_decay": 0.1}, 1e-4),
        ({"model": "gpt_tiny", "optimizer": "rmsprop"}, 1e-4),
        ({"model": "gpt_tiny", "clip_norm": 0.25, "accumulate_steps": 2}, 1e-4),
        ({"model": "resnet20", "precision": "bfloat16", "batch_per_device": 4}, 1e-3),
        # Lists of modules, and recurrent layers.
        ({"model": "unet", "strategy_options": PARTED}, 1e-4),
        ({"model": "lstm_ptb", "mode": "forward_backward", "strategy_options": PARTED}, 1e-4),
        ({"model": "llama_tiny", "strategy": "tensor_parallel", "recompute": True}, 1e-5),
        ({"model": "mixtral_tiny", "strategy": "hsdp", "strategy_options": "shard_size=1"}, 1e-5),
    ],
    ids=["adamw", "rmsprop", "clipped", "bfloat16", "lists", "recurrent", "heads", "experts"],
)
def test_weights_in_parts_train_as_whole_ones(own, tmp_path, fields, tolerance):
    found, other = [], {"strategy": "ddp", "strategy_options": ""}
    if fields.get("strategy") == "tensor_parallel":  # ranks train the items of one process
        other |= {"strategy": "single", "launcher": "none", "devices_per_node": 1}
        other |= {"batch_per_device": 4}
    for how in ({}, other):
        log = tmp_path / str(len(how)) / "train.jsonl"
        each = {"batch_per_device": 2, "steps": 5, "warmup_steps": 0, **FSDP, **fields, **how}
        PYTORCH.trained(log, own, **each)
        found.append(mean_losses(log))
    assert found[0] == pytest.approx(found[1], rel=tolerance)


SCALED = """
import torch
from torch import nn

TASK, INPUT_SHAPE, CLASSES = "classification", (28, 28, 1), 10


class Scaled(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(784, CLASSES))
        self.gain = nn.Parameter(torch.tensor(1.0))


def build(input_shape, classes):
    return Scaled()
"""


def test_a_scalar_parameter_is_refused_by_its_name_with_what_to_do(own, tmp_path):
    (tmp_path / "scaled.py").write_text(SCALED)
    flags = ["--model-folder", str(tmp_path)]
    said = PYTORCH.refused(tmp_path / "train.jsonl", own, flags, model="scaled", **FSDP)
    assert "strategy fsdp shards each weight along its first axis, and gain has none" in said
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

class Small(nn.Module):  # a block of a transformer, as small as it may be
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(2), nn.Linear(2, 2)
    def forward(self, x):
        return self.out(self.norm(x))

class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.rows = nn.ParameterList([nn.Parameter(nn.Linear(50, 8).weight.detach())])
        self.blocks = nn.ModuleDict({"a": nn.Linear(20, 20), "b": nn.Linear(2, 2)})
        self.small = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in "ab")
        self.layers = nn.ModuleList(Small() for _ in "ab")
    def forward(self, x):
        return x

model = Tied()
names = {module: name for name, module in model.named_modules()}
print([names[unit] for unit in _units(model, 100)])
"""


def test_blocks_and_large_layers_are_units_unless_others_may_use_them(own):
    program = [own, "-c", UNITS]
    found = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ("['body.blocks.a', 'body.layers.0', 'body.layers.1']")


# One rank: traces a step and prints what its collectives gather and reduce, and what is stated.
EXCHANGED = """
import json, pathlib, sys, tempfile
sys.path.insert(0, "workflow_scripts")
import torch
from dlbench.common import plugins
from dlbench.trainer import engine, flags

BYTES = {"float": 4, "c10::BFloat16": 2, "c10::Half": 2, "unsigned char": 1}
spec = flags.parse(None, [*sys.argv[1:], "--log", "none"])[0]
strategy = engine.strategy_of(spec)(spec, "cpu")
made = plugins.load("pytorch", "engine").Engine(spec, strategy, None)
made.build()
made.begin(0)
made.window(1, 2, 2)
with torch.profiler.profile(record_shapes=True) as profiler:
    made.step(3, 3)
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "trace.json")
    profiler.export_chrome_trace(str(path))
    traced = json.loads(path.read_text())["traceEvents"]

def total(call, place):  # of the argument that is as large as all ranks' parts
    seen = 0
    for event in traced:
        if event.get("name") == call:
            shape, kind = (event["args"][of][place] for of in ("Input Dims", "Input type"))
            seen += torch.Size(shape).numel() * BYTES[kind]
    return seen

print(
    "exchanged",
    total("c10d::_allgather_base_", 0),
    total("c10d::_reduce_scatter_base_", 1),
    strategy.settings()["gathered_bytes_per_step"],
    strategy.settings()["reduced_bytes_per_step"],
)
# Gloo's reduce-scatters are all-reduces, too.
all_reduced = total("gloo:all_reduce", 0) - total("c10d::_reduce_scatter_base_", 1)
print("all-reduced", all_reduced, strategy.settings().get("all_reduced_bytes_per_step"))
del made
strategy.leave()
"""


@pytest.mark.parametrize(
    ("precision", "fields"),
    [
        ("float32", {"model": "resnet20", "strategy_options": PARTED}),
        ("bfloat16", {"model": "gpt_tiny", "recompute": True, "accumulate_steps": 2}),
        ("float16", {"model": "gpt_tiny", "strategy_options": "reshard_after_forward=False"}),
        ("bfloat16", {"model": "gpt_tiny", "mode": "forward"}),
    ],
)
def test_the_bytes_that_are_stated_are_those_of_the_collectives_in_a_trace(own, precision, fields):
    how = {**PYTORCH.fields, **FSDP, "launcher": "torchrun", "dataset": "synthetic"}
    run = Run(**{**how, "batch_per_device": 2, "steps": 3, "precision": precision, **fields})
    for said in ranks.outputs(own, EXCHANGED, run.flags()):
        traced = said.partition("exchanged ")[2].split()
        assert traced[:2] == traced[2:4], said
        assert int(traced[0]) > 0, said


GROUPS = "shard_size=2"  # two of four ranks


@pytest.mark.parametrize(
    ("strategy", "fields", "gathered", "all_reduced"),
    [
        # Half of four blocks of 198 272 weights and of 65 792 others.
        ("hsdp", {}, True, 4 * (4 * 198_272 + 65_792) // 2),
        # Of 4 items of 128 tokens of width 128: per block two sums, two gradients, and one sum
        # that is computed again.
        ("tensor_parallel", {"precision": "bfloat16", "recompute": True, "accumulate_steps": 2},
         True, 2 * 4 * 128 * 128 * 4 * 5),
        # In float32, two sums and two gradients.
        ("tensor_parallel", {"model": "llama_tiny"}, True, 4 * 4 * 128 * 128 * 4 * 4),
        ("tensor_parallel", {"mode": "forward", "strategy_options": ""}, False,
         4 * 8 * 128 * 128 * 4 * 2),
    ],
    ids=["hsdp", "tensor parallel", "llama", "one group"],
)  # fmt: skip
def test_groups_exchange_the_bytes_that_are_stated(
    own, strategy, fields, gathered, all_reduced, monkeypatch
):
    monkeypatch.setenv("DLBENCH_BINDING", "none")
    how = {**PYTORCH.fields, "launcher": "torchrun", "dataset": "synthetic", "model": "gpt_tiny"}
    how |= {"strategy": strategy, "strategy_options": GROUPS, "devices_per_node": 4}
    run = Run(**{**how, "batch_per_device": 2, "steps": 3, **fields})
    for said in ranks.outputs(own, EXCHANGED, run.flags(), range(4), 4):
        traced = said.partition("exchanged ")[2].split()
        assert traced[:2] == traced[2:4], said
        assert bool(int(traced[0])) == gathered, said
        assert traced[5:7] == [str(all_reduced)] * 2, said


DIVIDED = {**ON_DIGITS, "model": "vit_tiny", "optimizer": "adamw", "weight_decay": 0.1}
# There may be fewer cores than four.
DIVIDED |= {"clip_norm": 0.25, "evaluate": "yes", "steps": 6, "warmup_steps": 0, "binding": "none"}


@pytest.fixture(scope="module")
def undivided(own, digits, tmp_path_factory):
    log = tmp_path_factory.mktemp("undivided") / "train.jsonl"
    PYTORCH.trained(log, own, digits, **DIVIDED)
    return log


@pytest.mark.ci
@pytest.mark.parametrize(
    ("strategy", "options"),
    [("hsdp", GROUPS), ("tensor_parallel", GROUPS), ("tensor_parallel", "")],
)
def test_four_processes_that_share_weights_train_as_one_with_their_batch(
    own, digits, undivided, tmp_path, strategy, options
):
    log = tmp_path / "train.jsonl"
    fields = {**DIVIDED, "batch_per_device": 8, "devices_per_node": 4, "launcher": "local"}
    PYTORCH.trained(log, own, digits, strategy=strategy, strategy_options=options, **fields)
    assert mean_losses(log) == pytest.approx(losses(undivided), rel=1e-5)
    scores, wanted = ([e["loss"] for e in events(each, "eval")] for each in (log, undivided))
    assert scores == pytest.approx(wanted, rel=1e-5)
    assert len(digests(log)) == 4
    assert len(set(digests(log))) == 1


ODD_HEADS = """
from dlbench.trainer.pytorch.models import transformers

TASK, INPUT_SHAPE, CLASSES, RECOMPUTES = "language", (8,), 16, True
DIVIDES = ("pytorch",)
SIZE = {"width": 12, "heads": 3, "depth": 1}


def build(input_shape, classes):
    constants = {"TASK": TASK, "SIZE": SIZE, "POSITIONS": 8}
    return transformers.build(input_shape, classes, constants)
"""


def test_heads_that_ranks_do_not_divide_are_refused(own, tmp_path):
    (tmp_path / "odd_heads.py").write_text(ODD_HEADS)
    fields = {"model": "odd_heads", **FSDP, "strategy": "tensor_parallel"}
    said = PYTORCH.refused(
        tmp_path / "train.jsonl", own, ["--model-folder", str(tmp_path)], **fields
    )
    assert "tensor_parallel: 2 ranks do not divide 3 heads: choose another shard_size" in said
