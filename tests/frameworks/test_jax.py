"""Features of JAX only: a mesh of devices, flags of XLA, and its own errors."""

import os
import subprocess

import pytest

from dlbench.log import event_log
from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY
from support.trainers.framework_runs import JAX, ON_DIGITS, digests, losses
from support.trainers.training_runs import events

TWO_DEVICES = {"strategy": "sharded", "devices_per_node": 2}
FRAMEWORK = JAX  # of the fixtures


def test_memory_is_allocated_as_the_user_says(own, tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    log = tmp_path / "train.jsonl"
    JAX.trained(log, own, steps=1)
    settings = events(log, "run_start")[0]["strategy_settings"]
    assert settings["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


@pytest.mark.parametrize(("flags", "said"), [("", "False"), ("=true", "True")])
def test_jaxlib_tells_whether_xla_hides_latency_which_it_does_if_asked(own, flags, said):
    flags = f"--xla_gpu_enable_latency_hiding_scheduler{flags}" if flags else ""
    program = "from dlbench.trainer.jax.strategies import *; print(latency_hiding_scheduler())"
    told = subprocess.run(
        [own, "-c", program],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY / "workflow_scripts"), "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == said


@pytest.mark.ci
def test_two_devices_of_one_process_train_as_one_with_their_batch(
    own, digits, one_device, tmp_path
):
    log = tmp_path / "train.jsonl"
    JAX.trained(log, own, digits, steps=20, **ON_DIGITS | {"evaluate": "yes"}, **TWO_DEVICES)
    assert len(event_log.rank_paths(log)) == 1
    assert losses(log) == pytest.approx(losses(one_device), rel=1e-4)
    assert len(digests(log)) == 2
    assert len(set(digests(log))) == 1
    # A device is one core, float32 is float32, and memory is allocated as JAX does by itself.
    start, machine = events(one_device, "run_start")[0], events(one_device, "machine")[0]
    assert len(start["cores"]) == 1
    assert "multi_thread_eigen=false" in start["strategy_settings"]["xla_flags"]
    assert machine["software"]["jax_build"]["matmul_precision"] == "float32"
    assert "XLA_PYTHON_CLIENT_PREALLOCATE" not in start["strategy_settings"]


BLOCKS = {**ON_DIGITS, "model": "vit_tiny", "optimizer": "adamw", "weight_decay": 0.1}
# There may be fewer cores than four.
BLOCKS |= {"clip_norm": 0.25, "evaluate": "yes", "steps": 6, "warmup_steps": 0, "binding": "none"}


@pytest.mark.ci
def test_four_devices_that_share_blocks_train_as_one_with_their_batch(own, digits, tmp_path):
    found = []
    for axis in (1, 2, 4):
        how = {"strategy": "sharded", "devices_per_node": 4, "batch_per_device": 8}
        how["strategy_options"] = f"batch_norm=global,model_axis={axis}"
        log = tmp_path / str(axis) / "train.jsonl"
        JAX.trained(log, own, digits, **BLOCKS | (how if axis > 1 else {}))
        found.append([*losses(log), *(event["loss"] for event in events(log, "eval"))])
        assert len(digests(log)) == (4 if axis > 1 else 1)
        assert len(set(digests(log))) == 1
    for divided in found[1:]:
        assert divided == pytest.approx(found[0], rel=1e-5)


ALL_REDUCED = """
import math, re, sys
sys.path.insert(0, "workflow_scripts")
from dlbench.common import plugins
from dlbench.trainer import engine, flags

spec = flags.parse(None, [*sys.argv[1:], "--log", "none"])[0]
strategy = engine.strategy_of(spec)(spec, "cpu")
made = plugins.load("jax", "engine").Engine(spec, strategy, None)
made.build()
made.begin(0)
made.trace()
shapes = []
for line in made._step.as_text().splitlines():
    assert not re.search(r" (all-gather|all-to-all|reduce-scatter|collective-permute)\\(", line)
    if " all-reduce(" in line:
        shapes += re.findall(r"f32\\[([\\d,]+)\\]", line.partition(" all-reduce(")[0])
print(4 * sum(math.prod(map(int, shape.split(","))) for shape in shapes))
print(strategy.settings()["all_reduced_bytes_per_step"])
"""


@pytest.mark.parametrize("axis", [2, 4])
def test_devices_that_share_blocks_all_reduce_what_is_stated_and_exchange_nothing_else(
    own, monkeypatch, axis
):
    monkeypatch.setenv("DLBENCH_BINDING", "none")
    how = {**JAX.fields, "model": "gpt_tiny", "dataset": "synthetic", "devices_per_node": 4}
    how |= {"strategy": "sharded", "strategy_options": f"batch_norm=global,model_axis={axis}"}
    run = Run(**how, batch_per_device=2, steps=1)
    told = subprocess.run(
        [own, "-c", ALL_REDUCED, *run.flags()], cwd=REPOSITORY, capture_output=True, text=True
    )
    # Per block two sums and two gradients, of as many items of 128 tokens as two for each device
    # that shares it; and the gradients of 463 872 weights of each, over two such groups. XLA
    # reduces that of the tied embedding twice, and of the 256 positions the 128 of an item.
    values, others = 4 * 4 * 2 * axis * 128 * 128, (463_872, 128 * 128) if axis == 2 else (0, 0)
    stated, more = 4 * (values + others[0]), 4 * others[1]
    assert told.stdout.split()[-2:] == [str(stated + more), str(stated)], told.stderr


def test_normalisation_is_over_the_items_that_the_option_says(own, small, digits, tmp_path):
    def found(name, **how):
        log = tmp_path / name / "train.jsonl"
        fields = {**ON_DIGITS, "model": "small_model", "epochs": 1, "evaluate": "yes", **how}
        JAX.trained(log, own, digits, small, **fields)
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


def test_flags_that_xla_does_not_know_are_named(own, tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_fast=true")
    said = JAX.refused(tmp_path / "train.jsonl", own)
    assert "XLA does not take XLA_FLAGS=--xla_cpu_fast=true: " in said
    assert "--xla_cpu_fast" in said.partition("fast=true: ")[2]
    (end,) = events(tmp_path / "train.jsonl", "run_end")
    assert end["status"] == "failed"
