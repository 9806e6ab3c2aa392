"""Several copies of a run at once, with real trainers: two on two cores."""

import json
import os
import subprocess
import sys

import pytest

from dlbench.log import event_log
from dlbench.study.runs import Run
from support.trainers.training_runs import TRAIN, events

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores"),
]


def test_two_copies_train_at_once_each_on_a_core_of_its_own_and_the_first_has_a_profile(tmp_path):
    run = Run(
        model="lenet5", dataset="synthetic", batch_per_device=8, copies_per_node=2, steps=1000,
        profile=True,
    )  # fmt: skip
    log = tmp_path / "train.jsonl"
    trainer = [sys.executable, TRAIN, *run.flags(), "--log", log]
    program = [sys.executable, TRAIN.with_name("start_run.py"), "--log", log]
    program += ["--messages", tmp_path / "messages", f"--spec={json.dumps(run.values())}"]
    finished = subprocess.run([*program, "--", *trainer], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    logs = event_log.rank_paths(log)
    starts = [events(log, "run_start")[0] for log in logs]
    assert [start["copy"] for start in starts] == [0, 1]
    cores = [set(start["cores"]) for start in starts]
    assert [len(own) for own in cores] == [1, 1]
    assert not cores[0] & cores[1]
    waited = [events(log, "met")[0]["waited_s"] for log in logs]
    assert min(waited) < 0.1
    # The node is sampled by one of them, each process by itself.
    assert ["node_cpu_percent" in events(log, "sample")[0] for log in logs] == [True, False]
    assert [len(events(log, "profile")) for log in logs] == [1, 0]
    # Equal seed and data.
    losses = [[step["loss"] for step in events(log, "step")] for log in logs]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 1010
    found = json.loads((tmp_path / "run.json").read_text())
    # What else this machine does may stall steps, or slow down one copy.
    assert found["status"] in ("ok", "unstable"), found
    summary = found["summary"]
    assert summary["others_cpu_cores"] is not None  # each copy is ours
    assert (summary["steps_measured"], summary["trace_file"]) == (1000, "trace.json.gz")
    rates = summary["copies_images_per_second"]
    assert len(rates) == 2
    # They begin together, but others of this machine may hold one of them up.
    assert 0.5 < summary["overlap"] <= 1
    assert summary["images_per_second"] == pytest.approx(sum(rates) / 2)
