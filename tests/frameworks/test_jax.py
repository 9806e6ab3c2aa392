"""Features of JAX only: a mesh of devices, flags of XLA, and its own errors."""

import os
import subprocess

import pytest

from dlbench.common import plugins
from dlbench.log import event_log
from support.machines.paths import REPOSITORY
from support.trainers.framework_runs import JAX, ON_DIGITS, digests, losses
from support.trainers.training_runs import events

TWO_DEVICES = {"strategy": "sharded", "devices_per_node": 2}
FRAMEWORK = JAX  # of the fixtures


@pytest.fixture(scope="module")
def jax(own):
    return own


def test_a_device_is_one_core_and_float32_is_float32(jax, tmp_path):
    log = tmp_path / "train.jsonl"
    JAX.trained(log, jax, steps=1)
    start, machine = events(log, "run_start")[0], events(log, "machine")[0]
    assert "multi_thread_eigen=false" in start["strategy_settings"]["xla_flags"]
    assert machine["software"]["jax_build"]["matmul_precision"] == "float32"


@pytest.mark.parametrize("said", [None, "false"])
def test_memory_is_allocated_as_jax_does_unless_the_user_says_otherwise(
    jax, tmp_path, monkeypatch, said
):
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    monkeypatch.delenv(name, raising=False)
    if said:
        monkeypatch.setenv(name, said)
    log = tmp_path / "train.jsonl"
    JAX.trained(log, jax, steps=1)
    assert events(log, "run_start")[0]["strategy_settings"].get(name) == said


@pytest.mark.parametrize(("flags", "said"), [("", "False"), ("=true", "True"), ("=false", "False")])
def test_jaxlib_tells_whether_xla_hides_latency_which_it_does_if_asked(jax, flags, said):
    flags = f"--xla_gpu_enable_latency_hiding_scheduler{flags}" if flags else ""
    program = "from dlbench.trainer.jax.xla_options import *; print(latency_hiding_scheduler())"
    told = subprocess.run(
        [jax, "-c", program],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY / "workflow_scripts"), "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == said


def test_two_devices_of_one_process_train_as_one_with_their_batch(jax, digits, tmp_path):
    logs = {name: tmp_path / name / "train.jsonl" for name in ("one", "two")}
    JAX.trained(logs["one"], jax, digits, epochs=1, **{**ON_DIGITS, "batch_per_device": 64})
    JAX.trained(logs["two"], jax, digits, epochs=1, **ON_DIGITS, **TWO_DEVICES)
    assert len(event_log.rank_paths(logs["two"])) == 1
    assert losses(logs["two"]) == pytest.approx(losses(logs["one"]), rel=1e-4)
    assert len(digests(logs["two"])) == 2
    assert len(set(digests(logs["two"]))) == 1


def test_every_process_logs_the_mean_over_all_devices(jax, digits, tmp_path):
    log = tmp_path / "train.jsonl"
    JAX.trained(log, jax, digits, steps=5, **ON_DIGITS, **JAX.two_processes)
    first, second = event_log.rank_paths(log)
    assert losses(first) == losses(second)


@pytest.mark.slow
def test_normalisation_is_over_the_items_that_the_option_says(jax, small, digits, tmp_path):
    def found(name, **how):
        log = tmp_path / name / "train.jsonl"
        fields = {**ON_DIGITS, "model": "small_model", "epochs": 1, "evaluate": "yes", **how}
        JAX.trained(log, jax, digits, small, **fields)
        (start,) = events(log, "run_start")
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


def test_flags_that_xla_does_not_know_are_named(jax, tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_fast=true")
    said = JAX.refused(tmp_path / "train.jsonl", jax)
    assert "XLA does not take XLA_FLAGS=--xla_cpu_fast=true: " in said
    assert "--xla_cpu_fast" in said.partition("fast=true: ")[2]
    (end,) = events(tmp_path / "train.jsonl", "run_end")
    assert end["status"] == "failed"
