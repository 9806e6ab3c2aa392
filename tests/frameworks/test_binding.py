"""Ranks on GPUs are bound to cores of their own; the GPUs are simulated, the CPUs compute."""

import os
import re
import subprocess

import pytest

from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY
from support.trainers.training_runs import events

RANK = REPOSITORY / "tests/support/trainers/ranks_on_gpus.py"


def train(python, log, data, ranks, environ=None, **fields):
    run = Run(
        **{"framework": "pytorch", "environment": "pytorch", "strategy": "ddp"},
        **{"launcher": "local", "model": "lenet5", "dataset": "digits", "batch_per_device": 8},
        **{"devices_per_node": ranks, "steps": 3, "warmup_steps": 1, "input": "torch", **fields},
    )
    trainer = [str(python), str(RANK), *run.flags(), "--data", str(data), "--log", str(log)]
    command = plugins.load("launchers", run.launcher).command(run, [*trainer, "--device=gpu"], None)
    variables = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env=variables | (environ or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("ranks", "cores"),
    [(2, None), *(pytest.param(*how, marks=pytest.mark.slow) for how in ((4, 4), (2, 7)))],
)
def test_workers_of_all_ranks_are_as_many_as_the_cores_and_no_core_is_bound_twice(
    ranks, cores, python, digits, tmp_path
):
    there = cores or len(os.sched_getaffinity(0))
    if there < ranks:
        pytest.skip(f"{ranks} ranks need as many cores; this process may use {there}")
    log = tmp_path / "train.jsonl"
    faked = {"DLBENCH_TEST_CORES": str(cores)} if cores else {}
    done = train(python("pytorch"), log, digits, ranks, faked)
    assert done.returncode == 0, done.stderr
    starts = [events(path, "run_start")[0] for path in event_log.rank_paths(log)]
    bound = [start["cores"] for start in starts]
    flat = [core for each in bound for core in each]
    assert len(starts) == ranks and len(flat) == len(set(flat))
    assert {len(each) for each in bound} == {there // ranks}
    workers = list(map(int, re.findall(r"workers: (\d+)", done.stderr)))
    assert workers == [there // ranks] * ranks
    assert sum(workers) == there - starts[0]["binding"]["left_over_cpus"]
    assert not list(tmp_path.glob(".local-rank*"))
    if ranks == 4:  # the last GPUs are near the first cores
        assert bound == [[2], [3], [0], [1]]
        assert [start["binding"]["far_cpus"] for start in starts] == [0] * 4
        assert [start["devices"] for start in starts] == [[f"gpu:{n}"] for n in range(4)]
        assert starts[2]["binding"]["gpus"] == [
            {"uuid": "GPU-fa2-0000", "pci": "0000:02:00.0", "numa_node": 0}
        ]


def test_ranks_that_all_see_one_gpu_are_refused_in_words(python, digits, tmp_path):
    log = tmp_path / "train.jsonl"
    done = train(python("pytorch"), log, digits, 2, {"CUDA_VISIBLE_DEVICES": "1"})
    assert done.returncode != 0
    end = events(log, "run_end")[0]
    assert "2 local ranks that see the same need 2 GPUs (1 for each); seen: GPU-" in end["message"]


@pytest.mark.slow
def test_a_run_may_say_itself_how_it_is_bound(python, digits, tmp_path):
    log = tmp_path / "train.jsonl"
    done = train(python("pytorch"), log, digits, 2, {"DLBENCH_TEST_CORES": "4"}, binding="none")
    assert done.returncode == 0, done.stderr
    for path in event_log.rank_paths(log):
        start = events(path, "run_start")[0]
        assert (start["spec"]["binding"], start["binding"]["mode"]) == ("none", "none")
        assert start["cores"] is None and start["binding"]["threads"] == 2
    assert re.findall(r"workers: (\d+)", done.stderr) == ["2", "2"]
