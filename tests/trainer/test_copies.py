"""Several copies of a run at once, with real trainers: two on two cores."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.log import event_log
from dlbench.study.runs import Run
from dlbench.trainer import copies
from support.machines.processes import alive
from support.trainers.training_runs import events, pids_of_ranks

SCRIPTS = Path(__file__).parents[2] / "workflow_scripts"
RUN = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "copies_per_node": 2}

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def start(folder, *flags, **fields):
    """Start a run under supervision. Returns the process."""
    run, log = Run(**RUN | fields), folder / "train.jsonl"
    trainer = [sys.executable, SCRIPTS / "train.py", *run.flags(), "--log", log]
    program = [sys.executable, SCRIPTS / "start_run.py", "--log", log, *flags]
    program += ["--messages", folder / "messages", f"--spec={json.dumps(run.values())}"]
    return subprocess.Popen([*program, "--", *trainer], stderr=subprocess.PIPE, text=True)


def record(folder):
    return json.loads((folder / "run.json").read_text())


def test_two_copies_are_trained_at_once_each_on_a_core_of_its_own(tmp_path):
    process = start(tmp_path, steps=3000)
    _, messages = process.communicate(timeout=300)
    assert process.returncode == 0, messages
    assert record(tmp_path)["summary"]["others_cpu_cores"] is not None  # each copy is ours
    logs = event_log.rank_paths(tmp_path / "train.jsonl")
    starts = [events(log, "run_start")[0] for log in logs]
    assert [start["copy"] for start in starts] == [0, 1]
    cores = [set(start["cores"]) for start in starts]
    assert [len(own) for own in cores] == [1, 1]
    assert not cores[0] & cores[1]
    assert all(len(events(log, "step")) == 3010 for log in logs)
    waited = [events(log, "met")[0]["waited_s"] for log in logs]
    assert min(waited) < 0.1
    # The node is sampled by one of them, each process by itself.
    first, second = (events(log, "sample")[0] for log in logs)
    assert "node_cpu_percent" in first
    assert "node_cpu_percent" not in second
    # Equal seed and data.
    losses = [[step["loss"] for step in events(log, "step")] for log in logs]
    assert losses[0] == losses[1]
    found = record(tmp_path)
    # What else this machine does may stall steps, or slow down one copy.
    assert found["status"] in ("ok", "unstable"), found
    summary = found["summary"]
    assert summary["steps_measured"] == 3000
    rates = summary["copies_images_per_second"]
    assert len(rates) == 2
    # They begin together, but others of this machine may hold one of them up.
    assert 0.5 < summary["overlap"] <= 1
    assert summary["images_per_second"] == pytest.approx(sum(rates) / 2)


def test_a_copy_that_is_killed_ends_the_other_and_the_run_says_so(tmp_path):
    process = start(tmp_path, steps=10**6)
    pids = pids_of_ranks(tmp_path / "train.jsonl", 2, process)
    os.kill(pids[1], signal.SIGKILL)
    process.communicate(timeout=120)
    found = record(tmp_path)
    assert found["status"] == "failed"
    assert found["message"].startswith("copy 1 ended without a word after step ")
    assert "copy 1 failed (killed by SIGKILL)" in (tmp_path / "messages").read_text()
    assert not any(map(alive, pids))


@pytest.mark.slow
def test_a_copy_that_hangs_ends_the_run(tmp_path):
    # On a busy machine it may take so long to take a first step.
    for hang_limit_s in (20, 100):
        place = tmp_path / str(hang_limit_s)
        process = start(place, f"--hang-limit-s={hang_limit_s}", steps=10**6)
        if pids := pids_of_ranks(place / "train.jsonl", 2, process):
            os.kill(pids[1], signal.SIGSTOP)
        process.communicate(timeout=240)
        found = record(place)
        if pids and "no step yet" not in found["message"]:
            break
    assert found["status"] == "failed"
    assert found["message"].startswith(f"hung: no step for {hang_limit_s} s; copy 0: step ")
    assert not any(map(alive, pids))


def test_a_failure_of_a_copy_is_that_of_the_run(tmp_path):
    process = start(tmp_path, steps=100, learning_rate=1e39)
    process.communicate(timeout=120)
    assert record(tmp_path)["status"] == "failed"
    assert record(tmp_path)["message"].endswith(": the loss is not a number")
    assert record(tmp_path)["message"].startswith("copy ")


def refused(folder, *flags, environ=(), **fields):
    """The message of a trainer that is started by hand and does not start."""
    run = Run(**RUN | {"steps": 5} | fields)
    log = folder / "train.jsonl"
    finished = subprocess.run(
        [sys.executable, SCRIPTS / "train.py", *run.flags(), "--log", log, *flags],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **dict(environ)},
    )
    assert finished.returncode == 1
    (end,) = events(log, "run_end")
    assert end["message"] in finished.stderr
    return end["message"]


def test_what_cannot_be_packed_is_refused(tmp_path):
    assert "start_processes.py --copies 2" in refused(tmp_path / "alone")
    copy = {"DLBENCH_COPY": "1"}
    cores = len(os.sched_getaffinity(0))
    found = refused(tmp_path / "cores", environ=copy)
    assert found.startswith(f"copy 1 must have 1 core(s) of its own and has {cores}")
    found = refused(tmp_path / "kept", "--checkpoint", str(tmp_path), environ=copy)
    assert found == copies.NO_CHECKPOINTS
    how = {"strategy": "multiworker", "launcher": "local"}
    assert "a strategy of one process" in refused(tmp_path / "many", environ=copy, **how)


def test_of_copies_the_first_one_has_a_profile(tmp_path):
    process = start(tmp_path, steps=200, profile=True)
    _, messages = process.communicate(timeout=300)
    assert process.returncode == 0, messages
    logs = event_log.rank_paths(tmp_path / "train.jsonl")
    assert [len(events(log, "profile")) for log in logs] == [1, 0]
    assert record(tmp_path)["summary"]["trace_file"] == "trace.json.gz"
