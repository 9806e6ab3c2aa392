"""JAX trains what TensorFlow trains, and logs it as TensorFlow does."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from paths import REPOSITORY
from training_runs import LEARNING, TRAIN, events, pids_of_ranks, train

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.study.runs import Run

JAX = {"framework": "jax", "environment": "jax"}
ON_DIGITS = {"dataset": "digits", "evaluate": "no", "optimizer": "momentum", "batch_per_device": 32}
TWO_PROCESSES = {"strategy": "sharded", "strategy_options": "processes=device", "launcher": "local",
                 "devices_per_node": 2}  # fmt: skip
TWO_DEVICES = {"strategy": "sharded", "devices_per_node": 2}


@pytest.fixture(scope="module")
def jax(python):
    return python("jax")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Flags that name a folder with the model `small_model`."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copyfile(REPOSITORY / "tests/support/small_model.py", folder / "small_model.py")
    return ["--model-folder", str(folder)]


def trained(log, python, data=None, flags=(), **fields):
    """The events of a run that ends well."""
    finished = train(log, data, flags, python, **{**JAX, **fields})
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return list(event_log.read(log))


def command_of(run, words, python):
    """The command of a run's launcher that starts the trainer by these words."""
    launcher = plugins.load("launchers", run.launcher)
    return launcher.command(run, list(map(str, words)), python.parents[1])


def refused(log, python, flags=(), **fields):
    """What is said of a run that cannot be."""
    finished = train(log, None, flags, python, **{"steps": 1, **JAX, **fields})
    assert finished.returncode == 1, finished.stderr
    assert "Traceback" not in finished.stderr
    return finished.stderr


def steps_of(log):
    """(step, loss, learning rate) of each step, in or out of windows."""
    found = []
    for event in events(log, "step"):
        losses = event.get("losses", [event["loss"]])
        rates = event.get("learning_rates", [event["learning_rate"]] * len(losses))
        first = event["step"] - len(losses) + 1
        found += zip(range(first, event["step"] + 1), losses, rates, strict=True)
    return found


def losses(log):
    return [loss for _, loss, _ in steps_of(log)]


def digests(log):
    """Those of the weights at the end, of all devices of all ranks."""
    return [d for path in event_log.rank_paths(log) for d in events(path, "run_end")[0][
        "weights_sha256"]]  # fmt: skip


@pytest.fixture(scope="module")
def learned(jax, digits, tmp_path_factory):
    """The log of three epochs."""
    log = tmp_path_factory.mktemp("learned") / "train.jsonl"
    trained(log, jax, digits, batch_per_device=32, **{**LEARNING, "epochs": 3})
    return log


def test_digits_are_learned(learned):
    scores = [event["top1"] for event in events(learned, "eval")]
    assert len(scores) == 4
    assert scores[0] < 0.3 < 0.85 < scores[-1]


def test_the_log_has_the_events_and_fields_of_tensorflows_and_its_own_versions(
    learned, python, digits, tmp_path
):
    log = tmp_path / "train.jsonl"
    trained(log, python("tensorflow"), digits, framework="tensorflow", environment="train",
            **{**LEARNING, "epochs": 1})  # fmt: skip
    forms = [
        {event["event"]: sorted(event) for event in event_log.read(path)} for path in (learned, log)
    ]
    assert forms[0] == forms[1]
    start, machine = events(learned, "run_start")[0], events(learned, "machine")[0]
    assert start["versions"].keys() == {"python", "jax", "jaxlib", "keras", "numpy"}
    assert "multi_thread_eigen=false" in start["strategy_settings"]["xla_flags"]
    assert machine["software"]["jax_build"]["matmul_precision"] == "float32"


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
    jax, small, tmp_path, model, mode, precision
):
    log = tmp_path / "train.jsonl"
    fields = {"model": model, "batch_per_device": 2, "steps": 3, "warmup_steps": 0}
    flags = small if model == "small_model" else ()
    end = trained(log, jax, None, flags, mode=mode, precision=precision, **fields)[-1]
    assert end["status"] == "ok"
    # The items are the same ones in every step; dropout draws anew where it learns.
    assert len(set(losses(log))) == (1 if mode == "forward" else 3)


def test_the_learning_rate_of_a_step_is_the_optimizers_also_where_the_loss_is_scaled(
    jax, digits, tmp_path
):
    found = []
    for name, rates in {
        "scaled": {"learning_rate": 0.01, "learning_rate_scaling": "linear",
                   "learning_rate_batch": 16},
        "plain": {"learning_rate": 0.02},
    }.items():  # fmt: skip
        log = tmp_path / name / "train.jsonl"
        trained(log, jax, digits, **ON_DIGITS, **rates, steps=3, precision="float16")
        found.append(steps_of(log))
    assert found[0] == found[1]


def test_windows_give_the_losses_rates_and_weights_of_single_steps_bit_for_bit(
    jax, small, digits, tmp_path
):
    found = []
    for length in (1, 10):
        log = tmp_path / str(length) / "train.jsonl"
        how = {"model": "small_model", "steps": 24, "warmup_steps": 5, "steps_per_sync": length,
               "learning_rate_warmup_steps": 13}  # fmt: skip
        trained(log, jax, digits, small, **ON_DIGITS, **how)
        found.append((steps_of(log), digests(log)))
    assert max(event.get("window_steps", 1) for event in events(log, "step")) == 10
    assert found[0] == found[1]


@pytest.mark.parametrize("how", [{}, TWO_PROCESSES], ids=["single", "sharded"])
def test_a_stopped_run_goes_on_bit_for_bit(jax, small, digits, tmp_path, how):
    fields = {**JAX, **ON_DIGITS, **how, "model": "small_model", "steps": 300, "optimizer": "adam",
              "precision": "float16", "learning_rate_warmup_steps": 250}  # fmt: skip
    whole, parted = tmp_path / "whole" / "train.jsonl", tmp_path / "parted" / "train.jsonl"
    trained(whole, jax, digits, small, **fields)
    parted.parent.mkdir()
    run = Run(**fields)
    words = [jax, TRAIN, *run.flags(), "--data", digits, "--log", parted, *small]
    command = command_of(run, [*words, "--checkpoint", tmp_path / "checkpoint"], jax)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (parted.is_file() and '"step": 20,' in parted.read_text()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=120)
    assert process.returncode in (75, 128 + signal.SIGTERM), said
    assert "with a checkpoint after step" in "".join(said)
    subprocess.run(command, check=True, capture_output=True)
    assert 20 <= events(parted, "resume")[0]["step"] < 300
    assert steps_of(parted) == steps_of(whole)
    assert digests(parted) == digests(whole)


def test_two_copies_train_at_once_each_on_a_core_of_its_own(jax, tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    log = tmp_path / "train.jsonl"
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=50, copies_per_node=2,
              **JAX)  # fmt: skip
    starter = REPOSITORY / "workflow_scripts/start_processes.py"
    command = [sys.executable, starter, "--copies", "2", "--cores-each", "1", "--"]
    command += [jax, TRAIN, *run.flags(), "--log", log]
    finished = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    first, second = event_log.rank_paths(log)
    cores = [set(events(path, "run_start")[0]["cores"]) for path in (first, second)]
    assert [len(own) for own in cores] == [1, 1]
    assert not cores[0] & cores[1]
    assert losses(first) == losses(second)


@pytest.fixture(scope="module")
def one_device(jax, digits, tmp_path_factory):
    """The log of one device with the batch of two."""
    log = tmp_path_factory.mktemp("one") / "train.jsonl"
    trained(log, jax, digits, epochs=1, **{**ON_DIGITS, "batch_per_device": 64})
    return log


@pytest.mark.parametrize("how", [TWO_DEVICES, TWO_PROCESSES], ids=["one process", "two"])
def test_two_devices_train_as_one_with_their_batch(jax, digits, one_device, tmp_path, how):
    log = tmp_path / "train.jsonl"
    trained(log, jax, digits, epochs=1, **ON_DIGITS, **how)
    # Of several processes each logs the mean over all devices, too.
    for path in event_log.rank_paths(log):
        assert losses(path) == pytest.approx(losses(one_device), rel=1e-4)
    assert len(event_log.rank_paths(log)) == (2 if how == TWO_PROCESSES else 1)
    assert len(digests(log)) == 2
    assert len(set(digests(log))) == 1


def test_a_rank_that_fails_ends_the_others(jax, tmp_path):
    log = tmp_path / "train.jsonl"
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=10**6, **JAX,
              **TWO_PROCESSES)  # fmt: skip
    command = command_of(run, [jax, TRAIN, *run.flags(), "--log", log], jax)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pids = pids_of_ranks(log, 2, process)
    os.kill(pids[1], signal.SIGTERM)
    said = process.communicate(timeout=60)
    assert process.returncode not in (0, None), said
    (end,) = events(event_log.rank_path(log, 1), "run_end")
    assert end["status"] == "failed"


def test_normalisation_is_over_the_items_that_the_option_says(jax, small, digits, tmp_path):
    def found(name, **how):
        log = tmp_path / name / "train.jsonl"
        fields = {**ON_DIGITS, "model": "small_model", "epochs": 1, "evaluate": "yes", **how}
        start = trained(log, jax, digits, small, **fields)[1]
        assert start["strategy_settings"].get("batch_norm", name) == name
        assert len(set(digests(log))) == 1
        return losses(log), events(log, "eval")[-1]["loss"]

    one, score = found("one", batch_per_device=64)
    whole, whole_score = found("global", strategy_options="batch_norm=global", **TWO_DEVICES)
    parts, _ = found("local", strategy_options="batch_norm=local", **TWO_DEVICES)
    assert whole == pytest.approx(one, rel=1e-3)
    assert whole_score == pytest.approx(score, rel=1e-3)  # by the moving statistics
    assert parts != pytest.approx(one, rel=1e-3)


def test_errors_of_a_device_without_memory_are_known_as_such(jax):
    code = """
import jax
try:
    jax.numpy.ones(10**15).block_until_ready()
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""
    said = subprocess.run([jax, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith(tuple(plugins.constants("jax", "engine")["OUT_OF_MEMORY"])), said


def test_a_checkpoint_of_another_framework_is_refused(jax, python, digits, tmp_path):
    fields = {"dataset": "digits", "epochs": 200, "evaluate": "no"}
    flags = ["--checkpoint", str(tmp_path / "checkpoint")]
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "stop").touch()  # after the first step
    stopped = train(tmp_path / "a" / "train.jsonl", digits, flags, jax, **JAX, **fields)
    assert stopped.returncode == 75, stopped.stderr
    other = train(tmp_path / "b" / "train.jsonl", digits, flags, python("tensorflow"), **fields)
    assert other.returncode == 1
    assert "checkpoint of another run" in other.stderr
    assert "framework: 'jax' there, 'tensorflow' here" in other.stderr


def test_tensorflow_is_neither_installed_nor_needed(jax):
    code = "import importlib.util as u; print(u.find_spec('tensorflow'))"
    found = subprocess.run([jax, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "None"


def test_a_python_without_the_framework_says_what_installs_it(tmp_path):
    said = refused(tmp_path / "train.jsonl", REPOSITORY / ".venv/bin/python")
    assert "framework jax needs jax and keras" in said
    assert "make_environment.py envs/jax" in said


def test_a_strategy_of_another_framework_is_refused_with_those_that_fit(jax, tmp_path):
    said = refused(tmp_path / "train.jsonl", jax, strategy="mirrored")
    assert "strategy mirrored is one of tensorflow, not of jax" in said
    assert "jax has: sharded, single" in said


def test_a_model_that_there_is_not_is_refused_with_the_nearest(jax, tmp_path):
    said = refused(tmp_path / "train.jsonl", jax, model="lenet6")
    assert "no file models/lenet6.py (did you mean 'lenet5'?)" in said


def test_flags_that_xla_does_not_know_are_named(jax, tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_fast=true")
    said = refused(tmp_path / "train.jsonl", jax)
    assert "XLA does not take XLA_FLAGS=--xla_cpu_fast=true: " in said
    assert "--xla_cpu_fast" in said.partition("fast=true: ")[2]
    (end,) = events(tmp_path / "train.jsonl", "run_end")
    assert end["status"] == "failed"


def test_a_port_in_use_is_said(jax, tmp_path, monkeypatch):
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::", 0))
        taken.listen()
        address = f"localhost:{taken.getsockname()[1]}"
        monkeypatch.setenv("TF_CONFIG", (
            f'{{"cluster": {{"worker": ["{address}", "localhost:1"]}}, '
            '"task": {"type": "worker", "index": 0}}'
        ))  # fmt: skip
        run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=1, **JAX,
                  **TWO_PROCESSES)  # fmt: skip
        command = [jax, TRAIN, *run.flags(), "--log", tmp_path / "train.jsonl"]
        finished = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert finished.returncode == 1
    said = f"cannot meet at {address}: port {address.partition(':')[2]} (Address already in use)"
    assert said in finished.stderr
    assert "Traceback" not in finished.stderr
