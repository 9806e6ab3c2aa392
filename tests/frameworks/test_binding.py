"""Ranks on GPUs are bound to cores of their own; the GPUs are simulated, the CPUs compute."""

import os
import re
import subprocess

from dlbench.log import event_log
from dlbench.study.runs import Run
from support.machines.paths import REPOSITORY
from support.trainers.training_runs import command_of, events

RANK = REPOSITORY / "tests/support/trainers/ranks_on_gpus.py"


def train(python, log, data, ranks, **environ):
    run = Run(
        framework="pytorch", environment="pytorch", strategy="ddp", launcher="local",
        model="lenet5", dataset="digits", batch_per_device=8, devices_per_node=ranks, steps=3,
        warmup_steps=1, input="torch",
    )  # fmt: skip
    trainer = [python, RANK, *run.flags(), "--data", data, "--log", log, "--device=gpu"]
    command = command_of(run, trainer, python)
    variables = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    how = {"cwd": REPOSITORY, "env": variables | environ, "capture_output": True, "timeout": 300}
    return subprocess.run(command, text=True, check=False, **how)


def test_no_core_is_bound_twice_each_is_near_its_gpu_and_has_a_worker(python, digits, tmp_path):
    log = tmp_path / "train.jsonl"
    done = train(python("pytorch"), log, digits, 4, DLBENCH_TEST_CORES="4")
    assert done.returncode == 0, done.stderr
    starts = [events(path, "run_start")[0] for path in event_log.rank_paths(log)]
    # The last GPUs are near the first cores.
    assert [start["cores"] for start in starts] == [[2], [3], [0], [1]]
    assert [start["binding"]["far_cpus"] for start in starts] == [0] * 4
    assert [start["devices"] for start in starts] == [[f"gpu:{n}"] for n in range(4)]
    assert starts[2]["binding"]["gpus"] == [
        {"uuid": "GPU-fa2-0000", "pci": "0000:02:00.0", "numa_node": 0}
    ]
    assert starts[0]["binding"]["left_over_cpus"] == 0
    assert re.findall(r"workers: (\d+)", done.stderr) == ["1"] * 4
    assert not list(tmp_path.glob(".local-rank*"))


def test_ranks_that_all_see_one_gpu_are_refused_in_words(python, digits, tmp_path):
    log = tmp_path / "train.jsonl"
    done = train(python("pytorch"), log, digits, 2, CUDA_VISIBLE_DEVICES="1")
    assert done.returncode != 0
    end = events(log, "run_end")[0]
    assert "2 local ranks that see the same need 2 GPUs (1 for each); seen: GPU-" in end["message"]
