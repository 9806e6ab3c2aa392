"""A real trainer under its supervisor: ranks that die, hang or lose their supervisor."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlbench.log import attempts
from dlbench.study.runs import Run
from support.machines.processes import alive
from support.trainers.training_runs import (
    SERVERS,
    TRAIN,
    TWO_DEVICES,
    events,
    pids_of_ranks,
    skip_without_horovod,
)


def start_supervised(folder, *flags, **fields):
    """Start a run as the workflow does, of steps without end."""
    fields = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 10**6,
              **fields}  # fmt: skip
    run, log = Run(**fields), folder / "train.jsonl"
    skip_without_horovod(run, sys.executable)
    trainer = [sys.executable, str(TRAIN), *run.flags(), "--log", str(log)]
    program = [sys.executable, str(TRAIN.with_name("start_run.py")), "--log", str(log)]
    program += ["--messages", str(folder / "messages"), f"--spec={json.dumps(run.values())}"]
    return subprocess.Popen([*program, *flags, "--", *trainer], stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    "how",
    [pytest.param(TWO_DEVICES[1], marks=pytest.mark.ci), *TWO_DEVICES[2:]],
    ids=lambda how: "-".join(how.values()),
)
def test_a_rank_that_dies_ends_the_run_and_leaves_nothing(how, tmp_path):
    process = start_supervised(tmp_path, **how, devices_per_node=2)
    pids = pids_of_ranks(tmp_path / "train.jsonl", 2, process)
    os.kill(pids[1], signal.SIGKILL)
    process.communicate(timeout=120)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["status"] == "failed"
    assert record["message"].startswith("rank 1 ended without a word after step ")
    assert not any(map(alive, pids))


@pytest.mark.ci
def test_a_loss_that_is_not_a_number_ends_all_ranks_with_that_message(tmp_path):
    how = TWO_DEVICES[3] | {"devices_per_node": 2}
    process = start_supervised(tmp_path, **how, learning_rate=1e39)
    process.communicate(timeout=120)
    assert process.returncode == 0
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["status"] == "failed"
    assert record["message"].endswith("the loss is not a number")
    # All that its ranks used was seen from outside: no part of it is taken for others'.
    assert record["summary"]["others_cpu_cores"] is not None, record["summary"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("network", ["auto", "host"])
def test_processes_of_a_run_find_one_another_though_a_proxy_is_set(tmp_path, monkeypatch, network):
    # Nobody listens there; gRPC asked it for the way to 127.0.0.1, and waited.
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    how = TWO_DEVICES[3] | {"devices_per_node": 2}
    limits = ["--time-limit-s=100", f"--network={network}"]
    start_supervised(tmp_path, *limits, **how, steps=3, warmup_steps=1).communicate(timeout=150)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["status"] in ("ok", "unstable"), record["message"]


def test_a_worker_that_dies_ends_the_run_and_its_servers(tmp_path):
    process = start_supervised(tmp_path, **SERVERS, devices_per_node=2)
    pids_of_ranks(tmp_path / "train.jsonl", 1, process)
    pids = processes_with(str(tmp_path).encode(), "cmdline")
    (worker,) = set(pids) & set(processes_with(b'{"type": "worker", "index": 1}', "environ"))
    os.kill(worker, signal.SIGKILL)
    process.communicate(timeout=120)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["status"] == "failed"
    # Who notices first says it: the launcher, or the chief that lost its worker.
    lost = "worker 1 failed (killed by SIGKILL); the others are ended", "UnavailableError"
    assert any(words in record["message"] for words in lost)
    assert not any(map(alive, pids))


def processes_with(words, file):
    """The processes whose command line or environment contains some texts."""
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{file}"):
        with contextlib.suppress(OSError):
            if words in path.read_bytes().replace(b"\0", b" "):
                found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize(
    ("how", "ranks"),
    [pytest.param({}, 1, marks=pytest.mark.ci), (TWO_DEVICES[1], 2), (TWO_DEVICES[3], 2)],
    ids=["one process", "horovodrun", "local"],
)
def test_a_supervisor_that_is_killed_leaves_no_trainer_and_the_next_attempt_keeps_its_log(
    how, ranks, tmp_path
):
    process = start_supervised(tmp_path, devices_per_node=ranks, **how)
    pids = pids_of_ranks(tmp_path / "train.jsonl", ranks, process)
    process.kill()
    process.communicate(timeout=30)
    deadline = time.monotonic() + 60
    while any(map(alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (tmp_path / "train.jsonl").unlink()  # as Snakemake does before it tries again
    attempts.rescue(tmp_path / "train.jsonl")
    assert events(tmp_path / "train.attempt1.jsonl", "step")


def test_a_rank_that_hangs_ends_the_run_and_leaves_nothing(tmp_path):
    # On a busy machine it may take so long to take a first step. Gloo by itself ends a run whose
    # ranks wait 30 s for one.
    for hang_limit_s in (12, 100):
        folder = tmp_path / f"{hang_limit_s}"
        folder.mkdir()
        how = TWO_DEVICES[1] | {"devices_per_node": 2}
        process = start_supervised(folder, f"--hang-limit-s={hang_limit_s}", **how)
        if pids := pids_of_ranks(folder / "train.jsonl", 2, process):
            os.kill(pids[1], signal.SIGSTOP)
        process.communicate(timeout=240)
        record = json.loads((folder / "run.json").read_text())
        if pids and "no step yet" not in record["message"]:
            break
    assert record["status"] == "failed"
    hung = f"rank 0: hung: no step for {hang_limit_s} s; step "
    assert record["message"].startswith(hung), record["message"]
    assert not any(map(alive, pids))
