"""Each framework trains what TensorFlow trains, and logs it as TensorFlow does."""

import gzip
import json
import math
import signal
import socket
import subprocess

import pytest

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY
from support.trainers import framework_runs
from support.trainers.framework_runs import (
    JAX,
    ON_DIGITS,
    digests,
    losses,
    mean_losses,
    steps_of,
    stopped,
)
from support.trainers.training_runs import LEARNING, TRAIN, command_of, ended, events, train


@pytest.fixture(scope="module", params=sorted(framework_runs.ALL, reverse=True))
def framework(request):
    return framework_runs.ALL[request.param]


@pytest.fixture(scope="module")
def of_tensorflow(python, digits, tmp_path_factory):
    """The log of one epoch under TensorFlow."""
    log = tmp_path_factory.mktemp("tensorflow") / "train.jsonl"
    finished = train(log, digits, (), python("tensorflow"), **LEARNING)
    assert finished.returncode == 0, finished.stderr
    return log


@pytest.mark.ci
def test_digits_are_learned_and_logged_with_the_events_and_fields_of_tensorflow(
    framework, own, digits, of_tensorflow, tmp_path
):
    log = tmp_path / "train.jsonl"
    framework.trained(log, own, digits, batch_per_device=32, **{**LEARNING, "epochs": 3})
    scores = [event["top1"] for event in events(log, "eval")]
    assert len(scores) == 4
    assert scores[0] < 0.3 < 0.85 < scores[-1]
    forms = [
        {event["event"]: sorted(event) for event in event_log.read(path)}
        for path in (log, of_tensorflow)
    ]
    assert forms[0] == forms[1]
    start, machine = events(log, "run_start")[0], events(log, "machine")[0]
    (theirs,) = events(of_tensorflow, "run_start")
    assert start["forward_flops_per_item"] == theirs["forward_flops_per_item"] > 800_000
    assert start["versions"].keys() == {"python", "numpy"} | framework.versions
    assert (start["parameters"], start["attention"]) == (61_706, None)
    assert f"{framework.name}_build" in machine["software"]
    for path in (log, of_tensorflow):  # what is not counted of a CPU has the word of its framework
        (end,) = events(path, "run_end")
        assert end["peak_allocated_bytes_per_device"] is None
        assert end["peak_reserved_bytes_per_device"] is None
        assert end["device_memory_unknown"] == "the framework does not count it"
        assert end["peak_memory_bytes"] > 50e6


@pytest.mark.parametrize(
    ("model", "mode", "precision"),
    [
        ("lstm_ptb", "train", "bfloat16"),
        ("small_model", "train", "float16"),
        ("small_model", "forward", "bfloat16"),
        ("small_model", "forward_backward", "float32"),
    ],
)
def test_every_mode_and_precision_gives_finite_losses(
    framework, own, small, tmp_path, model, mode, precision
):
    log = tmp_path / "train.jsonl"
    fields = {"model": model, "batch_per_device": 2, "steps": 3, "warmup_steps": 0}
    flags = small if model == "small_model" else ()
    end = framework.trained(log, own, None, flags, mode=mode, precision=precision, **fields)[-1]
    assert end["status"] == "ok"
    # The items are the same ones in every step; dropout draws anew where it learns.
    assert len(set(losses(log))) == (1 if mode == "forward" else 3)


def test_a_vocabulary_is_padded_to_a_multiple_and_the_items_are_as_before(framework, own, tmp_path):
    fields = {"model": "gpt_tiny", "dataset": "synthetic", "batch_per_device": 2, "steps": 3}
    parameters, first = {}, {}
    for multiple in (None, 100):
        log = tmp_path / f"{multiple}.jsonl"
        framework.trained(log, own, **fields, vocabulary_multiple=multiple)
        (start,) = events(log, "run_start")
        parameters[multiple], first[multiple] = start["parameters"], losses(log)[0]
    width = 128  # of gpt_tiny, whose embedding is its output layer, too
    assert parameters[100] - parameters[None] == (300 - 256) * width
    assert first[100] == pytest.approx(first[None] + math.log(300 / 256), abs=0.1)


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


@pytest.mark.parametrize(
    ("devices", "steps"), [pytest.param(1, 600, marks=pytest.mark.ci), (2, 400)], ids=["1", "2"]
)
def test_a_stopped_run_goes_on_bit_for_bit_in_or_out_of_windows(
    framework, own, small, digits, tmp_path, devices, steps
):
    # Enough steps that the run is at work when its log is seen to have step 20.
    how = framework.two_processes if devices == 2 else {}
    fields = {**framework.fields, **ON_DIGITS, **how, "model": "small_model", "steps": steps,
              "optimizer": "adam", "precision": "float16",
              "learning_rate_warmup_steps": steps - 50}  # fmt: skip
    whole, parted = tmp_path / "whole" / "train.jsonl", tmp_path / "parted" / "train.jsonl"
    framework.trained(whole, own, digits, small, **fields, steps_per_sync=1)
    parted.parent.mkdir()
    run = Run(**fields, steps_per_sync=10 if devices == 1 else 1)
    words = [own, TRAIN, *run.flags(), "--data", digits, "--log", parted, *small]
    command = command_of(run, [*words, "--checkpoint", tmp_path / "checkpoint"], own)
    returncode, said = stopped(command, run, parted, 20, signal.SIGTERM)
    assert returncode in (75, 128 + signal.SIGTERM), said
    assert "with a checkpoint after step" in said
    assert ended(command, run).returncode == 0
    assert 20 <= events(parted, "resume")[0]["step"] < steps
    longest = max(event.get("window_steps", 1) for event in events(parted, "step"))
    assert longest == run.steps_per_sync
    assert steps_of(parted) == steps_of(whole)
    assert digests(parted) == digests(whole)


@pytest.mark.ci
def test_two_processes_train_as_one_with_their_batch(framework, own, digits, one_device, tmp_path):
    log = tmp_path / "train.jsonl"
    how = {**ON_DIGITS, **framework.two_processes, "page_cache": "warm", "profile": True}
    framework.trained(log, own, digits, steps=20, **how)
    paths = event_log.rank_paths(log)
    caches = [event for path in paths for event in events(path, "page_cache")]
    assert [event["kept"] for event in caches if "kept" in event] == [1]  # one reads for both
    assert [len(events(path, "profile")) for path in paths] == [1, 0]
    assert events(log, "profile")[0]["steps"] == 5
    content = json.loads(gzip.decompress(log.with_name(event_log.TRACE).read_bytes()))
    done = [event for event in content["traceEvents"] if event["ph"] == "X"]
    assert {"pid", "tid", "ts", "dur", "name"} <= set.intersection(*map(set, done))
    called = {"jax": "onv", "pytorch": "convolution"}[framework.name]
    assert any(called in event["name"] for event in done if event.get("cat") == "cpu_op")
    assert {event.get("cat") for event in done}.isdisjoint({"kernel", "gpu_memcpy"})
    assert mean_losses(log) == pytest.approx(losses(one_device), rel=1e-4)
    if framework is JAX:  # every process logs the mean over all devices
        assert losses(paths[0]) == losses(paths[1])
    assert len(digests(log)) == 2
    assert len(set(digests(log))) == 1


def test_two_devices_clip_their_mean_gradient_once_all_parts_are_computed(
    framework, own, digits, tmp_path
):
    fields = {**ON_DIGITS, "steps": 8, "clip_norm": 0.25}
    one, two = tmp_path / "one" / "train.jsonl", tmp_path / "two" / "train.jsonl"
    framework.trained(one, own, digits, **{**fields, "batch_per_device": 64})
    framework.trained(two, own, digits, **fields, **framework.two_processes, accumulate_steps=2)
    assert mean_losses(two) == pytest.approx(losses(one), rel=1e-4)


def test_grain_gives_a_run_the_items_of_our_own_reader(
    framework, own, digits, one_device, tmp_path
):
    if not list(own.parents[1].glob("lib/python3*/site-packages/grain")):
        pytest.skip(f"grain is missing: dlbench environment envs/{framework.name} --extra grain")
    log = tmp_path / "train.jsonl"
    fields = {**ON_DIGITS, "evaluate": "yes", "input": "grain", **framework.two_processes}
    framework.trained(log, own, digits, steps=20, **fields)
    assert mean_losses(log) == pytest.approx(losses(one_device), rel=1e-4)
    scores = [events(path, "eval")[-1]["loss"] for path in (log, one_device)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)


def test_no_other_framework_is_installed_or_needed(framework, own):
    others = {"tensorflow", "jax", "torch", *(["keras"] if framework.name == "pytorch" else [])}
    others -= {"torch" if framework.name == "pytorch" else framework.name}
    code = f"import importlib.util as u; print([n for n in {others} if u.find_spec(n)])"
    found = subprocess.run([own, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.ci
def test_a_python_without_the_framework_says_what_installs_it(framework, tmp_path):
    said = framework.refused(tmp_path / "train.jsonl", REPOSITORY / ".venv/bin/python")
    packages = {"jax": "jax and keras", "pytorch": "torch"}[framework.name]
    assert f"framework {framework.name} needs {packages}, which" in said
    assert f"dlbench environment envs/{framework.name}" in said


def test_torchrun_around_a_run_of_one_process_is_refused(framework, own, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = framework.refused(tmp_path / "train.jsonl", own)
    assert "torchrun started 2 processes, and strategy single has one" in said


@pytest.mark.parametrize("name", framework_runs.ALL)
def test_errors_of_a_device_without_memory_are_known_as_such(name, python):
    call = {
        "jax": "import jax; make = lambda: jax.numpy.ones(10**15).block_until_ready()",
        "pytorch": "import torch; make = lambda: torch.ones(10**15)",
    }[name]
    code = "try: make()\nexcept Exception as error: print(f'{type(error).__name__}: {error}')"
    command = [python(name), "-c", f"{call}\n{code}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith(tuple(plugins.constants(name, "engine")["OUT_OF_MEMORY"])), said


def test_a_port_in_use_is_said(framework, own, tmp_path, monkeypatch):
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::", 0))
        taken.listen()
        address = f"localhost:{taken.getsockname()[1]}"
        cluster = {"worker": [address, "localhost:1"]}
        monkeypatch.setenv(
            "TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
        )
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
