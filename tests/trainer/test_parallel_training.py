"""A real trainer on two devices, with each strategy and launcher."""

import gzip
import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dlbench.log import event_log
from dlbench.machine import fingerprints
from dlbench.study.runs import Run
from support.trainers.framework_runs import digests, losses, mean_losses
from support.trainers.training_runs import (
    LEARNING,
    SERVERS,
    TRAIN,
    TWO_DEVICES,
    command_of,
    events,
    train,
)

MIRRORED, HOROVOD, MPIRUN, MULTIWORKER = TWO_DEVICES
AVERAGED = SERVERS | {"strategy_options": "update=averaged,servers=2"}


@pytest.mark.parametrize(
    "how",
    [
        *(pytest.param(how, marks=pytest.mark.ci) for how in (MIRRORED, HOROVOD, MULTIWORKER)),
        MPIRUN,
        pytest.param(AVERAGED, marks=pytest.mark.ci),
    ],
    ids=lambda how: "-".join(how.values()),
)
def test_two_devices_train_as_one_process_with_twice_the_batch(how, one_process, digits, tmp_path):
    log, servers = tmp_path / "train.jsonl", how["strategy"] == "parameter_server"
    fields = {"batch_per_device": 32, "devices_per_node": 2, **how, **LEARNING}
    # Windows of steps, a page cache for which processes meet first, and a profile at the end.
    fields |= {} if servers else {"steps_per_sync": 5, "page_cache": "warm", "profile": True}
    finished = train(log, digits, **fields)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    logs = event_log.rank_paths(log)
    assert len(logs) == (1 if servers or how == MIRRORED else 2)
    assert len(digests(log)) == (1 if servers else 2)
    assert len(set(digests(log))) == 1
    np.testing.assert_allclose(mean_losses(log), losses(one_process), rtol=2e-5, atol=2e-5)
    ours, theirs = events(log, "eval")[-1], events(one_process, "eval")[-1]
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
    assert ours["top1"] == pytest.approx(theirs["top1"], abs=1 / 360)
    if len(logs) == 2:  # of different items
        pairs = zip(*map(losses, logs), strict=True)
        assert sum(a != b for a, b in pairs) > 0.95 * len(losses(log))
    if not servers:
        assert max(event.get("window_steps", 1) for event in events(log, "step")) == 5
        traced = [len(events(path, "profile")) for path in logs]
        assert traced == [1, 0][: len(logs)]
        (profile,) = events(log, "profile")
        assert profile["steps"] == 5
        content = json.loads(gzip.decompress(log.with_name(event_log.TRACE).read_bytes()))
        done = [event for event in content["traceEvents"] if event["ph"] == "X"]
        assert len(done) > 50 and all(event["ts"] >= 0 and event["dur"] >= 0 for event in done)
        assert any("onv" in event["name"] for event in done if event.get("cat") == "cpu_op")
    # All ranks describe the machine of one process.
    found = fingerprints.provenance([events(path, "machine") for path in logs])
    assert [rank["rank"] for rank in found["ranks"]] == list(range(len(logs)))
    alone = fingerprints.provenance([events(one_process, "machine")])
    assert fingerprints.columns(found) == fingerprints.columns(alone)
    if how == MPIRUN:
        assert found["libraries"]["mpi"].startswith("Open MPI")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("update", ["asynchronous", "barrier"])
def test_workers_with_a_parameter_server_learn_together(update, digits, tmp_path):
    log = tmp_path / "train.jsonl"
    how = SERVERS | {"strategy_options": f"update={update}"}
    finished = train(
        log, digits, batch_per_device=32, devices_per_node=2, **how, **LEARNING | {"epochs": 3}
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    steps, evaluations = events(log, "step"), events(log, "eval")
    assert [step["step"] for step in steps] == list(range(1, 69))
    assert [evaluation["step"] for evaluation in evaluations] == [0, 23, 45, 68]
    assert evaluations[-1]["top1"] > 0.85
    (start,) = events(log, "run_start")
    assert [device.partition("/device")[0] for device in start["devices"]] == [
        "/job:worker/replica:0/task:0",
        "/job:worker/replica:0/task:1",
    ]


@pytest.mark.parametrize(
    ("options", "overlap", "groups"),
    [
        ("gradient_groups=3", "yes", 3),
        ("gradient_groups=0,cycle_time_ms=1.0", "yes", 0),
        ("overlap=yes", "yes", 0),  # during the backward pass, as on GPUs
        ("compression=fp16,timeline=True", "no", 1),
    ],
)
def test_horovods_settings_change_no_result(
    options, overlap, groups, one_process, digits, tmp_path
):
    log = tmp_path / "train.jsonl"
    short = LEARNING | {"epochs": None, "steps": 5, "warmup_steps": 0}
    how = {"batch_per_device": 32, "devices_per_node": 2, "strategy_options": options}
    finished = train(log, digits, **how, **HOROVOD, **short)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    compressed = "compression" in options
    found = mean_losses(log)
    tolerance = 1e-2 if compressed else 2e-5
    np.testing.assert_allclose(found, losses(one_process)[:5], rtol=tolerance, atol=tolerance)
    assert len(set(digests(log))) == 1
    settings = events(log, "run_start")[0]["strategy_settings"]
    assert (settings["overlap"], settings["gradient_groups"]) == (overlap, groups)
    if compressed:
        trace = (log.parent / "timeline.json").read_text()
        assert "ALLREDUCE" in trace
        assert "float16" in trace


@pytest.mark.parametrize("how", [HOROVOD, MULTIWORKER], ids=lambda how: how["strategy"])
def test_embeddings_train_alike_on_all_ranks(how, tmp_path):
    log = tmp_path / "train.jsonl"
    finished = train(
        log,
        model="lstm_ptb",
        batch_per_device=2,
        steps=2,
        warmup_steps=0,
        devices_per_node=2,
        **how,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert len(set(digests(log))) == 1


@pytest.mark.parametrize(
    "how",
    [HOROVOD, pytest.param(MULTIWORKER, marks=pytest.mark.ci)],
    ids=lambda how: how["strategy"],
)
def test_ranks_that_were_started_for_different_runs_refuse_to_train(how, tmp_path):
    log = tmp_path / "train.jsonl"
    fields = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 2}
    run = Run(**fields, devices_per_node=2, **how)
    trainer = [sys.executable, str(TRAIN), *run.flags(), "--log", str(log)]
    # Slurm's, Horovod's and Open MPI's own variables, and TF_CONFIG, say which rank this is.
    script = (
        'case "$OMPI_COMM_WORLD_RANK$HOROVOD_RANK$TF_CONFIG" in 1|*\'"index": 1\'*) '
        f"set -- --seed 7;; esac; exec {shlex.join(trainer)} $@"
    )
    command = command_of(run, ["sh", "-c", script], sys.executable)
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode != 0
    messages = [events(path, "run_end")[0]["message"] for path in event_log.rank_paths(log)]
    assert any(
        message == "ranks 0 and 1 were not started for the same run on the same data: seed: 1 and 7"
        for message in messages
    ), messages


def test_ranks_that_mpirun_started_but_that_do_not_find_one_another_are_explained(
    tmp_path, monkeypatch
):
    # As with an mpirun whose MPI is not that of the image: each rank is alone.
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setenv("OPAL_PREFIX", str(Path(sys.executable).parents[1]))
    log = tmp_path / "train.jsonl"
    fields = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 1}
    run = Run(**fields, **MPIRUN, devices_per_node=2)
    trainer = [sys.executable, str(TRAIN), *run.flags(), "--log", str(log)]
    finished = subprocess.run(trainer, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 1
    (end,) = events(log, "run_end")
    assert "expected 2 Horovod processes on this node, found 1 (rank 0 of 1)" in end["message"]
    assert "mpirun started 2, but the MPI library here does not find them" in end["message"]
