"""start_pod.py: two pods of an indexed Job, here two processes of this machine, train one model."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.log import event_log
from dlbench.starting import start_pod
from dlbench.study.runs import Run
from support.trainers.framework_runs import digests
from support.trainers.training_runs import command_of, events

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def start(tmp_path, monkeypatch):
    """A function that starts a command in each of two pods; they are ended after the test."""
    monkeypatch.chdir(REPOSITORY)
    started = []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def start_pods(command, indices=(0, 1), **variables):
        for index in indices:
            environment = os.environ | {
                "JOB_COMPLETION_INDEX": str(index),
                "DLBENCH_POD_HOSTS": "localhost,127.0.0.1",
                "DLBENCH_POD_PORT": str(port),
                "DLBENCH_POD_WAIT_S": "60",
            }
            # Not to a pipe: what outlives the command would hold it open.
            with open(tmp_path / f"pod{index}.txt", "w") as said:
                how = {"env": environment | variables, "stdout": said, "stderr": said}
                started.append(subprocess.Popen(command, start_new_session=True, **how))
        return started

    start_pods.port = port
    yield start_pods
    for pod in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pod.pid, signal.SIGKILL)
        pod.wait()


def simple(*command):
    return [sys.executable, "workflow_scripts/start_pod.py", "--jobs", "worker=2", "--", *command]


def ends(started, patience_s=80):
    """The exit code of each pod."""
    deadline = time.monotonic() + patience_s
    return [pod.wait(timeout=max(1, deadline - time.monotonic())) for pod in started]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("strategy", ["multiworker", "horovod", "parameter_server"])
def test_two_pods_train_one_model(strategy, start, tmp_path):
    run = Run(
        model="lenet5", dataset="synthetic", batch_per_device=8, nodes=2, warmup_steps=1, steps=4,
        launcher="kubernetes", strategy=strategy,
    )  # fmt: skip
    log = tmp_path / "train.jsonl"
    trainer = [sys.executable, "workflow_scripts/train.py", *run.flags(), "--log", str(log)]
    codes = ends(start(command_of(run, trainer, sys.executable)))
    assert codes == [0, 0], [path.read_text() for path in tmp_path.glob("pod*.txt")]
    logs = event_log.rank_paths(log)
    assert len(logs) == (1 if strategy == "parameter_server" else 2)
    assert {events(path, "run_end")[0]["status"] for path in logs} == {"ok"}
    assert len(set(digests(log))) == 1


def test_a_pod_that_is_gone_ends_the_other(start, tmp_path):
    started = start(simple("sleep", "60"))
    time.sleep(3)
    os.killpg(started[1].pid, signal.SIGKILL)
    assert ends(started[:1], 20) == [1]
    assert "pod 1 is gone" in (tmp_path / "pod0.txt").read_text()


@pytest.mark.ci
def test_the_first_exit_code_is_that_of_both(start):
    started = start(simple("sh", "-c", "test $JOB_COMPLETION_INDEX = 0 && exec sleep 60; exit 7"))
    assert ends(started, 20) == [7, 7]


def test_a_signal_reaches_the_processes_and_ends_both_pods(start, tmp_path):
    script = f"trap 'touch {tmp_path}/$JOB_COMPLETION_INDEX; exit 3' TERM; sleep 60 & wait"
    started = start(simple("sh", "-c", script))
    time.sleep(3)
    started[1].send_signal(signal.SIGTERM)
    assert ends(started, 20) == [3, 3]
    assert (tmp_path / "1").exists()


def test_pod_0_ends_last(start):
    started = start(simple("sh", "-c", "test $JOB_COMPLETION_INDEX = 0 || sleep 3"))
    started[0].wait(timeout=20)
    assert started[1].wait(timeout=2) == 0
    assert ends(started) == [0, 0]


def test_a_pod_waits_for_the_others_only_so_long(start, tmp_path):
    program = [sys.executable, "workflow_scripts/start_pod.py", "--meet"]
    assert ends(start(program, indices=[0], DLBENCH_POD_WAIT_S="2")) == [1]
    said = (tmp_path / "pod0.txt").read_text()
    assert said.startswith("error: pod 0 waited 2 s for pod 1, in vain")


STRANGERS = [
    b"[" * 100_000 + b"\n",
    b"x" * (start_pod.MAX_LINE_BYTES + 1),
    b"\xff\n",
    b"7\n",
    b'{"to": "localhost", "index": 1}\n',
    b'{"to": "localhost", "index": [], "offer": 1}\n',
    b'{"to": "localhost", "index": 0, "offer": 1}\n',
    b'{"to": "127.0.0.1", "index": 1, "offer": 1}\n',  # a pod of another job
]


@pytest.mark.ci
def test_strangers_are_turned_away_and_hold_nobody_up(start):
    program = [sys.executable, "workflow_scripts/start_pod.py", "--meet"]
    start(program, indices=[0])
    for said in STRANGERS:
        with stranger(start.port) as connection:
            try:
                connection.sendall(said)
                assert connection.recv(1) == b"", said
            except (BrokenPipeError, ConnectionResetError):
                pass  # closed with something unread
    assert ends(start(program, indices=[1])) == [0, 0]


def stranger(port):
    """A connection to pod 0 as soon as it listens; pod 0 refuses it before it times out."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=start_pod.HELLO_S - 1)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_pod_that_is_alone_listens_to_nobody(monkeypatch):
    monkeypatch.setattr(socket, "create_server", None)
    alone = start_pod.Pod(0, ["localhost"], port=1, wait_s=1)
    assert alone.rendezvous([7], lambda: "made") == ({}, [[7]], "made")


def test_outside_of_a_pod_it_says_so():
    finished = subprocess.run(
        simple("true"), cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 1
    assert "JOB_COMPLETION_INDEX is not set" in finished.stderr


def test_tasks_are_spread_over_the_pods():
    assert start_pod.layout({"worker": 4}, 2) == [
        [("worker", 0), ("worker", 1)],
        [("worker", 2), ("worker", 3)],
    ]
    assert start_pod.layout({"chief": 1, "worker": 3, "ps": 3}, 3) == [
        [("chief", 0), ("ps", 2), ("worker", 0)],
        [("ps", 0), ("worker", 1)],
        [("ps", 1), ("worker", 2)],
    ]
    with pytest.raises(Error, match="3 workers cannot be spread evenly over 2 pods"):
        start_pod.layout({"worker": 3}, 2)


def test_each_task_knows_the_addresses_of_all():
    tasks = start_pod.layout({"chief": 1, "worker": 2, "ps": 1}, 2)
    mine = start_pod.tf_configs(1, tasks, ["a", "b"], [[1, 2], [3, 4]])
    found = [json.loads(variables["TF_CONFIG"]) for variables in mine]
    cluster = {"chief": ["a:1"], "ps": ["b:3"], "worker": ["a:2", "b:4"]}
    assert found == [
        {"cluster": cluster, "task": {"type": "ps", "index": 0}},
        {"cluster": cluster, "task": {"type": "worker", "index": 1}},
    ]


def test_ranks_follow_one_another_within_a_pod():
    ranks = start_pod.horovod_variables(1, 2, ["127.0.0.1", "b", "c"], 99)
    names = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"]
    assert [[rank[f"HOROVOD_{name}"] for name in names] for rank in ranks] == [
        ["2", "6", "0", "2", "1", "3"],
        ["3", "6", "1", "2", "1", "3"],
    ]
    assert ranks[0]["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "127.0.0.1"
