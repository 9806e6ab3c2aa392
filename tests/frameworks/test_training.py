"""Each framework trains what TensorFlow trains, and logs it as TensorFlow does."""

import math
import os
import signal
import socket
import subprocess
import sys

import pytest

from dlbench.log import event_log
from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY
from support.trainers import framework_runs
from support.trainers.framework_runs import (
    ON_DIGITS,
    command_of,
    digests,
    losses,
    mean_losses,
    steps_of,
    stopped,
)
from support.trainers.training_runs import LEARNING, TRAIN, ended, events, pids_of_ranks, train


# PyTorch first: of tests marked one_in(2), the case that JAX compiles for long runs with --slow.
@pytest.fixture(scope="module", params=sorted(framework_runs.ALL, reverse=True))
def framework(request):
    return framework_runs.ALL[request.param]


@pytest.fixture(scope="module")
def learned(framework, own, digits, tmp_path_factory):
    """The log of three epochs."""
    log = tmp_path_factory.mktemp("learned") / "train.jsonl"
    framework.trained(log, own, digits, batch_per_device=32, **{**LEARNING, "epochs": 3})
    return log


def test_digits_are_learned(learned):
    scores = [event["top1"] for event in events(learned, "eval")]
    assert len(scores) == 4
    assert scores[0] < 0.3 < 0.85 < scores[-1]


@pytest.fixture(scope="module")
def of_tensorflow(python, digits, tmp_path_factory):
    """The log of one epoch under TensorFlow."""
    log = tmp_path_factory.mktemp("tensorflow") / "train.jsonl"
    finished = train(log, digits, (), python("tensorflow"), **{**LEARNING, "epochs": 1})
    assert finished.returncode == 0, finished.stderr
    return log


def test_the_log_has_the_events_and_fields_of_tensorflows_and_its_own_versions(
    framework, learned, of_tensorflow
):
    forms = [
        {event["event"]: sorted(event) for event in event_log.read(path)}
        for path in (learned, of_tensorflow)
    ]
    assert forms[0] == forms[1]
    start, machine = events(learned, "run_start")[0], events(learned, "machine")[0]
    assert start["versions"].keys() == {"python", "numpy"} | framework.versions
    assert start["parameters"] == 61_706
    assert f"{framework.name}_build" in machine["software"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("model", "mode", "precision"),
    [
        ("unet", "train", "float32"),
        ("lstm_ptb", "train", "bfloat16"),
        ("small_model", "train", "float16"),
        ("small_model", "forward", "bfloat16"),
        ("small_model", "forward_backward", "float32"),
    ],
)
def test_every_task_mode_and_precision_gives_finite_losses(
    framework, own, small, tmp_path, model, mode, precision
):
    log = tmp_path / "train.jsonl"
    fields = {"model": model, "batch_per_device": 2, "steps": 3, "warmup_steps": 0}
    flags = small if model == "small_model" else ()
    end = framework.trained(log, own, None, flags, mode=mode, precision=precision, **fields)[-1]
    assert end["status"] == "ok"
    # The items are the same ones in every step; dropout draws anew where it learns.
    assert len(set(losses(log))) == (1 if mode == "forward" else 3)


@pytest.mark.one_in(2)
def test_a_vocabulary_is_padded_to_a_multiple_and_the_items_are_as_before(framework, own, tmp_path):
    fields = {"model": "gpt_tiny", "dataset": "synthetic", "batch_per_device": 2, "steps": 3}
    parameters, first = {}, {}
    for multiple in (None, 100):
        log = tmp_path / f"{multiple}.jsonl"
        padded = {"vocabulary_multiple": multiple} if multiple else {}
        framework.trained(log, own, **fields, **padded)
        (start,) = events(log, "run_start")
        parameters[multiple], first[multiple] = start["parameters"], losses(log)[0]
    width = 128  # of gpt_tiny, whose embedding is its output layer, too
    assert parameters[100] - parameters[None] == (300 - 256) * width
    assert first[100] == pytest.approx(first[None] + math.log(300 / 256), abs=0.1)


@pytest.mark.one_in(2)
def test_the_learning_rate_of_a_step_is_the_optimizers_also_where_the_loss_is_scaled(
    framework, own, digits, tmp_path
):
    found = []
    for name, rates in {
        "scaled": {"learning_rate": 0.01, "learning_rate_scaling": "linear",
                   "learning_rate_batch": 16},
        "plain": {"learning_rate": 0.02},
    }.items():  # fmt: skip
        log = tmp_path / name / "train.jsonl"
        framework.trained(log, own, digits, **ON_DIGITS, **rates, steps=3, precision="float16")
        found.append(steps_of(log))
    assert found[0] == found[1]


def test_windows_give_the_losses_rates_and_weights_of_single_steps_bit_for_bit(
    framework, own, small, digits, tmp_path
):
    found = []
    for length in (1, 10):
        log = tmp_path / str(length) / "train.jsonl"
        how = {"model": "small_model", "steps": 24, "warmup_steps": 5, "steps_per_sync": length,
               "learning_rate_warmup_steps": 13}  # fmt: skip
        framework.trained(log, own, digits, small, **ON_DIGITS, **how)
        found.append((steps_of(log), digests(log)))
    assert max(event.get("window_steps", 1) for event in events(log, "step")) == 10
    assert found[0] == found[1]


@pytest.mark.one_in(2)
# Enough steps that the run is at work when its log is seen to have step 20, also on a busy machine.
@pytest.mark.parametrize(("devices", "steps"), [(1, 600), (2, 400)], ids=["1", "2"])
def test_a_stopped_run_goes_on_bit_for_bit(framework, own, small, digits, tmp_path, devices, steps):
    how = framework.two_processes if devices == 2 else {}
    fields = {**framework.fields, **ON_DIGITS, **how, "model": "small_model", "steps": steps,
              "optimizer": "adam", "precision": "float16",
              "learning_rate_warmup_steps": steps - 50}  # fmt: skip
    whole, parted = tmp_path / "whole" / "train.jsonl", tmp_path / "parted" / "train.jsonl"
    framework.trained(whole, own, digits, small, **fields)
    parted.parent.mkdir()
    run = Run(**fields)
    words = [own, TRAIN, *run.flags(), "--data", digits, "--log", parted, *small]
    command = command_of(run, [*words, "--checkpoint", tmp_path / "checkpoint"], own)
    returncode, said = stopped(command, run, parted, 20, signal.SIGTERM)
    assert returncode in (75, 128 + signal.SIGTERM), said
    assert "with a checkpoint after step" in said
    assert ended(command, run).returncode == 0
    assert 20 <= events(parted, "resume")[0]["step"] < steps
    assert steps_of(parted) == steps_of(whole)
    assert digests(parted) == digests(whole)


@pytest.mark.one_in(2)
def test_two_copies_train_at_once_each_on_a_core_of_its_own(framework, own, tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    log = tmp_path / "train.jsonl"
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=50, copies_per_node=2,
              **framework.fields)  # fmt: skip
    starter = REPOSITORY / "workflow_scripts/start_processes.py"
    command = [sys.executable, starter, "--copies", "2", "--cores-each", "1", "--"]
    command += [own, TRAIN, *run.flags(), "--log", log]
    finished = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    first, second = event_log.rank_paths(log)
    cores = [set(events(path, "run_start")[0]["cores"]) for path in (first, second)]
    assert [len(each) for each in cores] == [1, 1]
    assert not cores[0] & cores[1]
    assert losses(first) == losses(second)


def test_two_processes_train_as_one_with_their_batch(framework, own, digits, one_device, tmp_path):
    log = tmp_path / "train.jsonl"
    how = {**ON_DIGITS, **framework.two_processes, "page_cache": "warm"}
    framework.trained(log, own, digits, steps=20, **how)
    assert [
        e["kept"]
        for path in event_log.rank_paths(log)
        for e in events(path, "page_cache")
        if "kept" in e
    ] == [1]  # one reads for both
    assert len(event_log.rank_paths(log)) == 2
    assert mean_losses(log) == pytest.approx(losses(one_device), rel=1e-4)
    assert len(digests(log)) == 2
    assert len(set(digests(log))) == 1


@pytest.mark.one_in(4)
@pytest.mark.parametrize("devices", [1, 2])
def test_grain_gives_a_run_the_items_of_our_own_reader(
    framework, own, having, digits, one_device, tmp_path, devices
):
    having("grain", framework.name)
    log = tmp_path / "train.jsonl"
    how = framework.two_processes if devices == 2 else {"batch_per_device": 64, "input_workers": 2}
    fields = {**ON_DIGITS, "evaluate": "yes", "input": "grain", **how}
    framework.trained(log, own, digits, steps=20, **fields)
    assert mean_losses(log) == pytest.approx(losses(one_device), rel=1e-4)
    scores = [events(path, "eval")[-1]["loss"] for path in (log, one_device)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_the_batch_that_grain_comes_to(
    framework, own, having, digits, tmp_path
):
    having("grain", framework.name)
    fields = {**framework.fields, **ON_DIGITS, "model": "lenet5", "steps": 400, "input": "grain"}
    whole, parted = tmp_path / "whole" / "train.jsonl", tmp_path / "parted" / "train.jsonl"
    framework.trained(whole, own, digits, **fields | {"input": "auto"})
    parted.parent.mkdir()
    run = Run(**fields)
    words = [own, TRAIN, *run.flags(), "--data", digits, "--log", parted]
    command = command_of(run, [*words, "--checkpoint", tmp_path / "checkpoint"], own)
    returncode, said = stopped(command, run, parted, 20, signal.SIGTERM)
    assert returncode in (75, 128 + signal.SIGTERM), said
    assert "with a checkpoint after step" in said
    assert ended(command, run).returncode == 0
    assert steps_of(parted) == steps_of(whole)


@pytest.mark.one_in(2)
def test_a_rank_that_fails_ends_the_others(framework, own, tmp_path):
    log = tmp_path / "train.jsonl"
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=10**6,
              **framework.fields, **framework.two_processes)  # fmt: skip
    command = command_of(run, [own, TRAIN, *run.flags(), "--log", log], own)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pids = pids_of_ranks(log, 2, process)
    os.kill(pids[1], signal.SIGTERM)
    said = process.communicate(timeout=60)
    assert process.returncode not in (0, None), said
    (end,) = events(event_log.rank_path(log, 1), "run_end")
    assert end["status"] == "failed"


def test_a_checkpoint_of_another_framework_is_refused(framework, own, python, digits, tmp_path):
    fields = {"dataset": "digits", "epochs": 200, "evaluate": "no"}
    flags = ["--checkpoint", str(tmp_path / "checkpoint")]
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "stop").touch()  # after the first step
    log = tmp_path / "a" / "train.jsonl"
    stopped = train(log, digits, flags, own, **framework.fields, **fields)
    assert stopped.returncode == 75, stopped.stderr
    other = train(tmp_path / "b" / "train.jsonl", digits, flags, python("tensorflow"), **fields)
    assert other.returncode == 1
    assert "checkpoint of another run" in other.stderr
    assert f"framework: '{framework.name}' there, 'tensorflow' here" in other.stderr


def test_no_other_framework_is_installed_or_needed(framework, own):
    others = {"tensorflow", "jax", "torch", *(["keras"] if framework.name == "pytorch" else [])}
    others -= {"torch" if framework.name == "pytorch" else framework.name}
    code = f"import importlib.util as u; print([n for n in {others} if u.find_spec(n)])"
    found = subprocess.run([own, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_python_without_the_framework_says_what_installs_it(framework, tmp_path):
    said = framework.refused(tmp_path / "train.jsonl", REPOSITORY / ".venv/bin/python")
    packages = {"jax": "jax and keras", "pytorch": "torch"}[framework.name]
    assert f"framework {framework.name} needs {packages}, which" in said
    assert f"dlbench environment envs/{framework.name}" in said


def test_a_strategy_of_another_framework_is_refused_with_those_that_fit(framework, own, tmp_path):
    said = framework.refused(tmp_path / "train.jsonl", own, strategy="mirrored")
    assert f"strategy mirrored is one of tensorflow, not of {framework.name}" in said
    assert f"{framework.name} has: {framework.several}, single" in said


def test_torchrun_around_a_run_of_one_process_is_refused(framework, own, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = framework.refused(tmp_path / "train.jsonl", own)
    assert "torchrun started 2 processes, and strategy single has one" in said


def test_a_field_that_the_framework_lacks_is_refused(framework, own, tmp_path):
    said = framework.refused(tmp_path / "train.jsonl", own, xla=True)
    assert f"framework {framework.name} " in said and "XLA" in said


def test_a_model_that_there_is_not_is_refused_with_the_nearest(framework, own, tmp_path):
    said = framework.refused(tmp_path / "train.jsonl", own, model="lenet6")
    assert "no file models/lenet6.py (did you mean 'lenet5'?)" in said


def test_a_port_in_use_is_said(framework, own, tmp_path, monkeypatch):
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::", 0))
        taken.listen()
        address = f"localhost:{taken.getsockname()[1]}"
        monkeypatch.setenv("TF_CONFIG", (
            f'{{"cluster": {{"worker": ["{address}", "localhost:1"]}}, '
            '"task": {"type": "worker", "index": 0}}'
        ))  # fmt: skip
        run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=1,
                  **framework.fields, **framework.two_processes)  # fmt: skip
        command = [own, TRAIN, *run.flags(), "--log", tmp_path / "train.jsonl"]
        finished = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert finished.returncode == 1
    said = (
        f"cannot rendezvous at {address}: port {address.partition(':')[2]} (Address already in use)"
    )
    assert said in finished.stderr
    assert "Traceback" not in finished.stderr
