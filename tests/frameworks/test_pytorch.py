"""Features of PyTorch only: torch.compile, torchrun, and its own errors."""

import dataclasses
import os
import shutil
import signal
import subprocess

import pytest

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.starting import start_command
from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY
from support.trainers import ranks
from support.trainers.framework_runs import (
    ON_DIGITS,
    PYTORCH,
    digests,
    losses,
    mean_losses,
    stopped,
)
from support.trainers.training_runs import TRAIN, command_of, events, train

TORCHRUN = {**PYTORCH.two_processes, "launcher": "torchrun"}
RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=1, **PYTORCH.fields)
FRAMEWORK = PYTORCH  # of the fixtures


@pytest.mark.ci
def test_a_device_has_its_threads_and_float32_is_float32(one_device):
    start, machine = events(one_device, "run_start")[0], events(one_device, "machine")[0]
    assert (start["devices"], len(start["cores"])) == (["cpu:0"], 1)
    assert machine["software"]["pytorch_build"]["fp32_precision"] == "ieee"


# As PyTorch's versions have them by default, or as somebody has set them before.
PRECISION = """
import sys
from types import SimpleNamespace

sys.path.insert(0, "workflow_scripts")
import torch
from dlbench.trainer.pytorch import step

cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
for backend in (torch.backends, matmul, cudnn, cudnn.conv, cudnn.rnn):
    backend.fp32_precision = "tf32"
how = SimpleNamespace(precision="float32", deterministic=False)
step.set_precision(how, SimpleNamespace(on_gpus=False, device=torch.device("cpu")))
print(*(backend.fp32_precision for backend in (torch.backends, matmul, cudnn.conv, cudnn.rnn)))
"""


@pytest.mark.ci
def test_float32_is_float32_in_all_operations_that_would_use_tf32(own):
    program = [own, "-c", PRECISION]
    found = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["ieee"] * 4


@pytest.fixture
def scalar(monkeypatch):
    """Compile without vectorized loops: detecting the vector extensions is slow."""
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "0")


@pytest.mark.ci
def test_a_compiled_step_gives_the_losses_of_one_that_is_not(own, scalar, digits, tmp_path):
    found = {}
    for compiled in (False, True):
        log = tmp_path / str(compiled) / "train.jsonl"
        PYTORCH.trained(log, own, digits, steps=5, compile=compiled, **ON_DIGITS)
        found[compiled] = losses(log)
    assert found[True] == pytest.approx(found[False], rel=1e-4)
    # It compiles anew in each run: a cache would make a second run another than the first.
    first, *others = [event["step_time_s"] for event in events(log, "step")]
    assert first > 10 * max(others)


@pytest.mark.ci
def test_the_dataloader_gives_the_items_of_our_own_reader(own, digits, one_device, tmp_path):
    log = tmp_path / "train.jsonl"
    how = {"batch_per_device": 64, "input": "torch", "input_workers": 2, "prefetch": 1}
    PYTORCH.trained(log, own, digits, steps=20, **ON_DIGITS | how)
    assert losses(log) == pytest.approx(losses(one_device), rel=1e-6)


def test_compiling_without_a_compiler_is_refused(own, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    said = PYTORCH.refused(tmp_path / "train.jsonl", own, compile=True)
    assert "compile: true needs a compiler of C++, and no-such-compiler is not on the path" in said


BLOCKS = {"model": "vit_tiny", "compile": True, "compile_mode": "blocks"}


def test_blocks_compiled_by_themselves_share_one_program(own, scalar, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_LOGS", "graph_code")
    log = tmp_path / "train.jsonl"
    fields = {"steps": 3, "warmup_steps": 0, "recompute": True, "dataset": "synthetic"}
    fields |= {"batch_per_device": 4, "precision": "bfloat16"}
    said = []
    for each in (BLOCKS, {"model": "vit_tiny"}):
        finished = train(log, None, (), own, **PYTORCH.fields | fields | each)
        assert finished.returncode == 0, finished.stderr
        said.append((losses(log), finished.stderr.count("TRACED GRAPH")))
        blocks = events(log, "run_start")[0]["strategy_settings"].get("compiled_blocks")
        assert blocks == (4 if each is BLOCKS else None)
        log = tmp_path / "eager" / "train.jsonl"
    (compiled, programs), (eager, none) = said
    assert (programs, none) == (1, 0)
    assert compiled == pytest.approx(eager, rel=1e-2)


@pytest.mark.parametrize(
    ("strategy", "compiled"),
    [("ddp", {"compile": True}), ("fsdp", BLOCKS)],
    ids=["whole with ddp", "blocks with fsdp"],
)
def test_compiled_steps_of_two_processes_train_and_are_evaluated_as_those_that_are_not(
    own, scalar, digits, tmp_path, strategy, compiled
):
    found = []
    for fields in (compiled, {"model": compiled.get("model", "lenet5")}):
        log = tmp_path / str(len(found)) / "train.jsonl"
        how = {**ON_DIGITS, "evaluate": "yes", **TORCHRUN, "strategy": strategy, **fields}
        PYTORCH.trained(log, own, digits, steps=3, warmup_steps=0, **how)
        found.append([*mean_losses(log), *(event["loss"] for event in events(log, "eval"))])
        assert len(set(digests(log))) == 1
    assert found[0] == pytest.approx(found[1], rel=1e-4)


ON_ANY_DEVICE = """
import sys
sys.path.insert(0, "workflow_scripts")
from dlbench.trainer import train
from dlbench.trainer.pytorch import engine
engine.check_compiling = lambda spec, strategy: None
train.main(None)
"""


def test_the_options_of_cuda_graphs_give_the_losses_of_a_step_without_them(
    own, scalar, digits, tmp_path
):
    # On a CPU PyTorch takes the options, compiles one program, and launches it without graphs.
    fields = {**PYTORCH.fields, **ON_DIGITS, "model": "lenet5", "steps": 4, "warmup_steps": 2}
    log, graphs = tmp_path / "eager" / "train.jsonl", tmp_path / "graphs" / "train.jsonl"
    PYTORCH.trained(log, own, digits, **fields)
    run = Run(**fields, compile=True, compile_mode="cuda_graphs", steps_per_sync=2)
    command = [own, "-c", ON_ANY_DEVICE, *run.flags(), "--data", digits, "--log", graphs]
    graphs.parent.mkdir()
    subprocess.run(command, check=True, capture_output=True, cwd=REPOSITORY)
    assert losses(graphs) == pytest.approx(losses(log), rel=1e-4)
    settings = events(graphs, "run_start")[0]["strategy_settings"]
    assert settings["triton.cudagraphs"] and settings["triton.cudagraph_or_error"]
    assert settings["fullgraph"] and not settings["graph_partition"]


def test_graphs_of_cuda_need_a_gpu(own, tmp_path):
    fields = {"compile": True, "compile_mode": "cuda_graphs"}
    said = PYTORCH.refused(tmp_path / "train.jsonl", own, **fields)
    assert "needs a GPU; this device is a CPU" in said


def test_blocks_that_a_model_file_says_and_does_not_have_are_missed(own, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n\n"
        'TASK = "classification"\nINPUT_SHAPE = (32, 32, 1)\nCLASSES = 10\nBLOCKS = True\n\n\n'
        "def build(input_shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(1024, classes))\n"
    )
    flags = ["--model-folder", str(tmp_path)]
    fields = {"model": "mine", "compile": True, "compile_mode": "blocks"}
    said = PYTORCH.refused(tmp_path / "train.jsonl", own, flags, **fields)
    assert "compile_mode blocks: mine has no blocks" in said


def test_processes_of_torchrun_train_as_one_with_their_batch(own, digits, one_device, tmp_path):
    log = tmp_path / "train.jsonl"
    PYTORCH.trained(log, own, digits, steps=20, **ON_DIGITS, **TORCHRUN)
    starts = [events(path, "run_start")[0] for path in event_log.rank_paths(log)]
    assert [(start["rank"], start["size"]) for start in starts] == [(0, 2), (1, 2)]
    assert {start["strategy_settings"]["backend"] for start in starts} == {"gloo"}
    assert not set(starts[0]["cores"]) & set(starts[1]["cores"])
    assert mean_losses(log) == pytest.approx(losses(one_device), rel=1e-4)
    assert len(set(digests(log))) == 1


@pytest.fixture
def mpirun(monkeypatch):
    """An Open MPI on the path, as a site has one: that of envs/train or of the machine."""
    environment = REPOSITORY / "envs/train/.venv"
    if not (environment / "bin/mpirun").exists():
        if (start_command.mpi_version("mpirun") or "").startswith("Open MPI"):
            return
        pytest.skip("no mpirun: dlbench environment envs/train --extra horovod")
    monkeypatch.setenv("PATH", str(environment / "bin"), prepend=os.pathsep)
    launcher = plugins.load("launchers", "mpirun")
    for name, value in launcher.library_variables(environment).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["accelerate", "deepspeed", "mpiexec", "mpirun"])
def launcher(request, own):
    if request.param == "mpirun":
        request.getfixturevalue("mpirun")
    elif request.param == "mpiexec" and not shutil.which("mpiexec.hydra"):
        pytest.skip("no mpiexec.hydra: install Debian's package mpich")
    elif (
        request.param != "mpiexec"
        and subprocess.run(
            [own, "-c", f"import {request.param}"], check=False, capture_output=True
        ).returncode
    ):
        pytest.skip(f"not installed: uv pip install --python {own} {request.param}")
    return request.param


def test_processes_of_other_launchers_train_as_one_with_their_batch(
    own, launcher, digits, one_device, tmp_path
):
    log = tmp_path / "train.jsonl"
    how = {**PYTORCH.two_processes, "launcher": launcher}
    PYTORCH.trained(log, own, digits, steps=20, **ON_DIGITS, **how)
    assert mean_losses(log) == pytest.approx(losses(one_device), rel=1e-4)
    assert len(digests(log)) == 2
    assert len(set(digests(log))) == 1


def test_a_signal_to_torchrun_has_the_ranks_write_a_checkpoint(own, digits, tmp_path):
    log = tmp_path / "train.jsonl"
    how = {**TORCHRUN, "checkpoint_writer": "dcp"}
    run = dataclasses.replace(RUN, dataset="digits", steps=250, **how)
    words = [own, TRAIN, *run.flags(), "--data", digits, "--log", log]
    command = command_of(run, [*words, "--checkpoint", tmp_path / "checkpoint"], own)
    returncode, said = stopped(command, run, log, 20, signal.SIGTERM)
    assert returncode != 0
    assert "stopped by SIGTERM with a checkpoint after step" in said
    subprocess.run(command, check=True, capture_output=True)
    for path in event_log.rank_paths(log):
        assert events(path, "resume")[0]["step"] >= 20
        assert events(path, "run_end")[0]["status"] == "ok"


def test_an_interface_that_is_not_there_is_named_with_those_that_are(own, tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nosuch0")
    fields = {"strategy": "ddp", "launcher": "local", "devices_per_node": 2}
    said = PYTORCH.refused(tmp_path / "train.jsonl", own, **fields)
    assert "GLOO_SOCKET_IFNAME=nosuch0 leaves none of the network interfaces" in said


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import keras\n", "models/mine.py needs the package keras"),
        ("def build(input_shape, classes):\n    pass\n", "found nothing; is its return missing?"),
        (
            "from torch import nn\n\ndef build(input_shape, classes):\n    return nn.Flatten()\n",
            "expected a model with one output of shape (10,), the logits of classification in 10 "
            "classes; found (1024,)",
        ),
        (
            "from torch import nn\n\ndef build(input_shape, classes):\n    return nn.Linear(5, 5)",
            "expected a model that takes one item of synthetic, of shape (32, 32, 1)",
        ),
        (
            "from dlbench.trainer.pytorch.models import transformers\n\n"
            "def build(input_shape, classes):\n    return transformers.Attention(128, 3, True)",
            "the heads must divide the width: 128 in 3 parts",
        ),
    ],
    ids=["of Keras", "nothing", "logits", "inputs", "heads"],
)
def test_a_model_that_does_not_fit_is_refused_with_the_reason(own, tmp_path, source, message):
    constants = 'TASK = "classification"\nINPUT_SHAPE = (32, 32, 1)\nCLASSES = 10\n\n'
    (tmp_path / "mine.py").write_text(constants + source)
    flags = ["--model-folder", str(tmp_path)]
    assert message in PYTORCH.refused(tmp_path / "train.jsonl", own, flags, model="mine")


def test_a_gpu_that_there_is_not_is_said(own, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    said = PYTORCH.refused(tmp_path / "train.jsonl", own, ["--device", "gpu"])
    assert "rank 0 needs 1 GPU(s) from number 0 on; its framework sees 0 in all" in said


LATE = """
import sys, time
sys.path.insert(0, "workflow_scripts")
from dlbench.trainer import cluster, engine, flags
cluster.RENDEZVOUS_TIMEOUT_S = float(sys.argv[1])
spec = flags.parse(None, [*sys.argv[2:], "--log", "none"])[0]
strategy = engine.strategy_of(spec)(spec, "cpu")
time.sleep(3 * strategy.rank)
print("all there", strategy.gather([strategy.rank]).ravel().tolist(), strategy.settings())
strategy.leave()
"""


def ranks_of(own, meeting_s, started=(0, 1)):
    """The messages of two ranks, of which the second calls a collective 3 s after the first."""
    words = [meeting_s, *dataclasses.replace(RUN, **TORCHRUN).flags()]
    return ranks.outputs(own, LATE, words, started)


def test_a_rank_waits_for_another_as_long_as_a_run_may_take(own):
    said = ranks_of(own, 60)
    assert ["all there [0.0, 1.0]" in one for one in said] == [True, True], said
    assert "'timeout_s': 604800" in said[0]


def test_a_rank_that_finds_no_other_says_so_after_the_time_for_meeting(own):
    assert "rank 0 of 2: the rendezvous at 127.0.0.1:" in ranks_of(own, 1, [0])[0]
