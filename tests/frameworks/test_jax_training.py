"""JAX trains what TensorFlow trains, and logs it as TensorFlow does."""

import json
import signal
import subprocess
import time

import pytest
from paths import REPOSITORY
from training_runs import LEARNING, TRAIN, events, train

from dlbench.log import event_log
from dlbench.study.runs import Run

JAX = {"framework": "jax", "environment": "jax"}
# Dropout, moving averages of the optimizer and a moving learning rate: all that has a state.
WITH_STATE = {
    "model": "cnn12",
    "dataset": "cifar10",
    "batch_per_device": 4,
    "optimizer": "adam",
    "precision": "float16",
    "learning_rate_warmup_steps": 40,
    "steps": 60,
    "warmup_steps": 1,
}


@pytest.fixture(scope="module")
def jax(python):
    return python("jax")


@pytest.fixture(scope="module")
def images(python, tmp_path_factory):
    """101 random images in three shards, that are moved and mirrored."""
    folder = tmp_path_factory.mktemp("data") / "cifar10"
    code = f"""
import sys
sys.path[:0] = ["{REPOSITORY}/tests/support"]
import numpy as np
from shards import dataset
random = np.random.default_rng(1)
reader = {{"encoding": "raw", "shape": [32, 32, 3], "classes": 10, "first_label": 0,
          "augmentation": "shift_flip"}}
dataset(__import__("pathlib").Path("{folder}"), 101, 3, reader, lambda index: {{
    "image/encoded": random.bytes(3072), "image/class/label": [index % 10]}})
"""
    subprocess.run([python("tensorflow"), "-c", code], check=True, capture_output=True)
    return folder


def trained(log, python, data=None, **fields):
    finished = train(log, data, python=python, **{**JAX, **fields})
    assert finished.returncode == 0, finished.stderr
    return list(event_log.read(log))


def losses(log):
    return [event["loss"] for event in event_log.read(log) if event["event"] == "step"]


def test_the_log_has_the_events_and_fields_of_tensorflows(jax, python, digits, tmp_path):
    forms = []
    for framework in ("jax", "tensorflow"):
        log = tmp_path / framework / "train.jsonl"
        fields = {"framework": framework, "environment": "train", **LEARNING}
        written = trained(log, python(framework), digits, batch_per_device=64, **fields)
        forms.append([
            (event["event"], sorted(event)) for event in written if event["event"] != "sample"
        ])  # fmt: skip
    assert forms[0] == forms[1]


def test_digits_are_learned(jax, digits, tmp_path):
    log = tmp_path / "train.jsonl"
    trained(log, jax, digits, batch_per_device=32, **{**LEARNING, "epochs": 3})
    scores = [event["top1"] for event in events(log, "eval")]
    assert len(scores) == 4
    assert scores[0] < 0.3 < 0.85 < scores[-1]
    assert events(log, "run_start")[0]["versions"].keys() >= {"jax", "jaxlib", "keras"}


@pytest.mark.parametrize(
    "model", ["lenet5", "resnet20", "lstm_ptb", "unet"]
)  # all tasks, and a normalised model
@pytest.mark.parametrize(
    ("mode", "precision"),
    [("train", "float16"), ("train", "bfloat16"), ("forward", "float32"),
     ("forward_backward", "float32")],
)  # fmt: skip
def test_every_mode_and_precision_gives_finite_losses(jax, tmp_path, model, mode, precision):
    log = tmp_path / "train.jsonl"
    fields = {"model": model, "batch_per_device": 2, "steps": 2, "warmup_steps": 0}
    end = trained(log, jax, mode=mode, precision=precision, **fields)[-1]
    assert end["status"] == "ok"
    assert mode == "train" or len(set(losses(log))) == 1  # nothing is learned


def test_a_stopped_run_goes_on_bit_for_bit(jax, images, tmp_path):
    whole, parted = tmp_path / "whole" / "train.jsonl", tmp_path / "parted" / "train.jsonl"
    trained(whole, jax, images, **WITH_STATE)
    parted.parent.mkdir()
    run = Run(**{**JAX, **WITH_STATE})
    flags = ["--data", images, "--checkpoint", tmp_path / "checkpoint", "--log", parted]
    command = [str(word) for word in (jax, TRAIN, *run.flags(), *flags)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (parted.is_file() and '"step": 20,' in parted.read_text()):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 75, process.stderr.read()
    subprocess.run(command, check=True, capture_output=True)
    assert losses(parted) == losses(whole)
    digests = [events(log, "run_end")[0]["weights_sha256"] for log in (parted, whole)]
    assert digests[0] == digests[1]


def test_a_checkpoint_of_another_framework_is_refused(jax, python, digits, tmp_path):
    fields = {"dataset": "digits", "epochs": 200, "evaluate": "no"}
    flags = ["--checkpoint", str(tmp_path / "checkpoint")]
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "stop").touch()  # after the first step
    stopped = train(tmp_path / "a" / "train.jsonl", digits, flags, python("jax"), **JAX, **fields)
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
    python = REPOSITORY / ".venv/bin/python"
    finished = train(tmp_path / "train.jsonl", python=python, steps=1, **JAX)
    assert finished.returncode == 1
    assert "framework jax needs jax and keras" in finished.stderr
    assert "make_environment.py envs/jax" in finished.stderr


def test_a_strategy_of_another_framework_is_refused(jax, tmp_path):
    finished = train(tmp_path / "train.jsonl", python=jax, steps=1, strategy="mirrored", **JAX)
    assert finished.returncode == 1
    assert "strategy mirrored is one of tensorflow, not of jax" in finished.stderr


@pytest.mark.parametrize("processes", ["node", "device"])
def test_two_devices_train_as_one_with_their_batch(jax, digits, tmp_path, processes):
    fields = {"dataset": "digits", "epochs": 1, "evaluate": "no", "optimizer": "momentum"}
    one, two = tmp_path / "one" / "train.jsonl", tmp_path / "two" / "train.jsonl"
    trained(one, jax, digits, batch_per_device=64, **fields)
    spread = {"strategy": "sharded", "strategy_options": f"processes={processes}"}
    launcher = "none" if processes == "node" else "local"
    trained(
        two, jax, digits, batch_per_device=32, devices_per_node=2, launcher=launcher,
        **spread, **fields,
    )  # fmt: skip
    assert losses(two) == pytest.approx(losses(one), rel=1e-4)
    logs = [two] if processes == "node" else [two, event_log.rank_path(two, 1)]
    digests = [d for log in logs for d in events(log, "run_end")[0]["weights_sha256"]]
    assert len(digests) == 2
    assert len(set(digests)) == 1


@pytest.mark.parametrize("batch_norm", ["local", "global"])
def test_normalisation_is_over_the_items_that_the_option_says(jax, tmp_path, batch_norm):
    log = tmp_path / "train.jsonl"
    fields = {"model": "resnet20", "batch_per_device": 2, "steps": 2, "warmup_steps": 0}
    options = {"strategy": "sharded", "strategy_options": f"batch_norm={batch_norm}"}
    start = trained(log, jax, devices_per_node=2, **fields, **options)[1]
    assert start["strategy_settings"]["batch_norm"] == batch_norm
    (tmp_path / f"{batch_norm}.json").write_text(json.dumps(losses(log)))
    assert len(set(losses(log))) == 2
