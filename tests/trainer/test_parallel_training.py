"""A real trainer on two devices, with each strategy and launcher."""

import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.study.runs import Run
from support.trainers.training_runs import LEARNING, SERVERS, TRAIN, TWO_DEVICES, events, train


@pytest.fixture(scope="module")
def on_two_devices(digits, tmp_path_factory):
    """A function that trains with a strategy and its launcher, once, and returns the log."""
    logs = {}

    def log_of(how):
        name = "-".join(how.values())
        if name not in logs:
            logs[name] = tmp_path_factory.mktemp("two") / "train.jsonl"
            servers = how["strategy"] == "parameter_server"
            fields = {"batch_per_device": 32, "devices_per_node": 2, **how, **LEARNING}
            fields |= {} if servers else {"page_cache": "warm"}  # for which processes meet first
            finished = train(logs[name], digits, **fields)
            assert finished.returncode == 0, finished.stdout + finished.stderr
        return logs[name]

    return log_of


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "how",
    [*TWO_DEVICES, SERVERS | {"strategy_options": "update=averaged,servers=2"}],
    ids=lambda how: "-".join(how.values()),
)
def test_two_devices_train_as_one_process_with_twice_the_batch(how, one_process, on_two_devices):
    log = on_two_devices(how)
    logs = event_log.rank_paths(log)
    digests = [d for path in logs for d in events(path, "run_end")[0]["weights_sha256"]]
    assert len(logs) == {"mirrored": 1, "parameter_server": 1}.get(how["strategy"], 2)
    assert len(digests) == (1 if how["strategy"] == "parameter_server" else 2)
    assert len(set(digests)) == 1
    losses = np.mean([[s["loss"] for s in events(path, "step")] for path in logs], axis=0)
    np.testing.assert_allclose(
        losses, [s["loss"] for s in events(one_process, "step")], rtol=2e-5, atol=2e-5
    )
    ours, theirs = events(log, "eval")[-1], events(one_process, "eval")[-1]
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
    assert ours["top1"] == pytest.approx(theirs["top1"], abs=1 / 360)


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "overlap", "groups"),
    [("gradient_groups=3", "yes", 3), ("gradient_groups=0,cycle_time_ms=1.0", "yes", 0)],
)
def test_horovods_settings_change_no_result(
    options, overlap, groups, one_process, digits, tmp_path
):
    log = tmp_path / "train.jsonl"
    how = {"strategy": "horovod", "launcher": "horovodrun", "strategy_options": options}
    short = LEARNING | {"epochs": None, "steps": 5}
    finished = train(log, digits, batch_per_device=32, devices_per_node=2, **how, **short)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    logs = event_log.rank_paths(log)
    losses = np.mean([[s["loss"] for s in events(path, "step")] for path in logs], axis=0)
    wanted = [s["loss"] for s in events(one_process, "step")][: len(losses)]
    np.testing.assert_allclose(losses, wanted, rtol=2e-5, atol=2e-5)
    settings = events(log, "run_start")[0]["strategy_settings"]
    assert (settings["overlap"], settings["gradient_groups"]) == (overlap, groups)


@pytest.mark.slow
def test_gradients_reduced_during_the_backward_pass_as_on_gpus_give_the_same_bits(digits, tmp_path):
    how = {"strategy": "horovod", "launcher": "horovodrun", "devices_per_node": 2}
    short = {"dataset": "digits", "batch_per_device": 32, "steps": 6, "deterministic": True}
    found = []
    for options, said in (("", ("no", 1)), ("overlap=yes", ("yes", 0))):
        log = tmp_path / options / "train.jsonl"
        finished = train(log, digits, strategy_options=options, **how, **short)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        settings = events(log, "run_start")[0]["strategy_settings"]
        assert (settings["overlap"], settings["gradient_groups"]) == said
        paths = event_log.rank_paths(log)
        found.append(
            [
                ([s["loss"] for s in events(p, "step")], events(p, "run_end")[0]["weights_sha256"])
                for p in paths
            ]
        )
    assert len(found[0]) == 2
    assert found[0] == found[1]


@pytest.mark.slow
def test_compressed_gradients_give_all_ranks_the_same_weights_and_the_trace_is_kept(tmp_path):
    log = tmp_path / "run" / "train.jsonl"
    how = {"strategy": "horovod", "launcher": "horovodrun", "devices_per_node": 2}
    finished = train(log, **how, steps=4, strategy_options="compression=fp16,timeline=True")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    ends = [events(path, "run_end")[0] for path in event_log.rank_paths(log)]
    assert len({tuple(end["weights_sha256"]) for end in ends}) == 1
    trace = (log.parent / "timeline.json").read_text()
    assert "ALLREDUCE" in trace
    assert "float16" in trace


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", TWO_DEVICES[1:], ids=lambda how: "-".join(how.values()))
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
    ends = [events(path, "run_end")[0] for path in event_log.rank_paths(log)]
    assert len({tuple(end["weights_sha256"]) for end in ends}) == 1


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", TWO_DEVICES[1:], ids=lambda how: "-".join(how.values()))
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
    command = plugins.load("launchers", run.launcher).command(
        run, ["sh", "-c", script], Path(sys.executable).parents[1]
    )
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode != 0
    messages = [events(path, "run_end")[0]["message"] for path in event_log.rank_paths(log)]
    assert any(
        message == "ranks 0 and 1 were not started for the same run on the same data: seed: 1 and 7"
        for message in messages
    ), messages


def test_horovod_ranks_see_different_data(on_two_devices):
    log = on_two_devices({"strategy": "horovod", "launcher": "horovodrun"})
    first, second = ([s["loss"] for s in events(p, "step")] for p in event_log.rank_paths(log))
    assert sum(a != b for a, b in zip(first, second, strict=True)) > 0.95 * len(first)


def test_ranks_that_mpirun_started_but_that_do_not_find_one_another_are_explained(
    tmp_path, monkeypatch
):
    # As with an mpirun whose MPI is not that of the image: each rank is alone.
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setenv("OPAL_PREFIX", str(Path(sys.executable).parents[1]))
    log = tmp_path / "train.jsonl"
    run = Run(
        model="lenet5",
        dataset="synthetic",
        batch_per_device=8,
        steps=1,
        strategy="horovod",
        launcher="mpirun",
        devices_per_node=2,
    )
    trainer = [sys.executable, str(TRAIN), *run.flags(), "--log", str(log)]
    finished = subprocess.run(trainer, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 1
    (end,) = events(log, "run_end")
    assert "expected 2 Horovod processes on this node, found 1 (rank 0 of 1)" in end["message"]
    assert "mpirun started 2, but the MPI library here does not find them" in end["message"]
