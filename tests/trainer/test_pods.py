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
from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.starting import start_pod
from dlbench.study.runs import Run

REPOSITORY = Path(__file__).parents[2]
FIELDS = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "nodes": 2}
FIELDS |= {"warmup_steps": 1, "launcher": "kubernetes"}


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
            environment = {
                "JOB_COMPLETION_INDEX": str(index),
                "DLBENCH_POD_HOSTS": "localhost,127.0.0.1",
                "DLBENCH_POD_PORT": str(port),
                "DLBENCH_POD_WAIT_S": "60",
            }
            environment = os.environ | environment | variables
            # Not to a pipe: what outlives the command would hold it open.
            with open(tmp_path / f"pod{index}.txt", "w") as said:
                started.append(
                    subprocess.Popen(
                        command, env=environment, stdout=said, stderr=said, start_new_session=True
                    )
                )
        return started

    start_pods.port = port
    yield start_pods
    for pod in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pod.pid, signal.SIGKILL)
        pod.wait()


def training(run, log):
    trainer = [sys.executable, "workflow_scripts/train.py", *run.flags(), "--log", str(log)]
    return plugins.load("launchers", run.launcher).command(run, trainer, None)


def simple(*command):
    return [sys.executable, "workflow_scripts/start_pod.py", "--jobs", "worker=2", "--", *command]


def ends(started, patience_s=80):
    """The exit code of each pod."""
    deadline = time.monotonic() + patience_s
    return [pod.wait(timeout=max(1, deadline - time.monotonic())) for pod in started]


def events(log, kind):
    return [event for event in event_log.read(log) if event["event"] == kind]


def installed(strategy):
    try:
        __import__("horovod.tensorflow")
        return True
    except ImportError:
        return strategy != "horovod"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("strategy", ["multiworker", "horovod", "parameter_server"])
def test_two_pods_train_one_model(strategy, start, tmp_path):
    if not installed(strategy):
        pytest.skip("horovod is not installed in the trainer's environment")
    run = Run(**FIELDS, strategy=strategy, steps=4)
    log = tmp_path / "train.jsonl"
    codes = ends(start(training(run, log)))
    assert codes == [0, 0], [path.read_text() for path in tmp_path.glob("pod*.txt")]
    logs = event_log.rank_paths(log)
    assert len(logs) == (1 if strategy == "parameter_server" else 2)
    last = [events(path, "run_end")[0] for path in logs]
    assert {end["status"] for end in last} == {"ok"}
    assert len({tuple(end["weights_sha256"]) for end in last}) == 1


def test_a_rank_that_is_killed_ends_both_pods(start, tmp_path):
    run = Run(**FIELDS, strategy="multiworker", steps=10**6)
    log = tmp_path / "train.jsonl"
    started = start(training(run, log))
    other = event_log.rank_path(log, 1)
    deadline = time.monotonic() + 60
    while not (other.is_file() and events(other, "step")):
        assert time.monotonic() < deadline and not any(pod.poll() for pod in started)
        time.sleep(0.2)
    pids = [events(path, "run_start")[0]["pid"] for path in (log, other)]
    os.kill(pids[1], signal.SIGKILL)
    codes = ends(started, 30)
    assert codes[1] == 128 + signal.SIGKILL
    assert codes[0] != 0
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_pod_that_is_gone_ends_the_other(start, tmp_path):
    started = start(simple("sleep", "60"))
    time.sleep(3)
    os.killpg(started[1].pid, signal.SIGKILL)
    assert ends(started[:1], 20) == [1]
    assert "pod 1 is gone" in (tmp_path / "pod0.txt").read_text()


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


def test_a_pod_of_another_job_is_turned_away(start):
    program = [sys.executable, "workflow_scripts/start_pod.py", "--meet"]
    start(program, indices=[0], DLBENCH_POD_WAIT_S="3")
    started = start(
        program, indices=[1], DLBENCH_POD_WAIT_S="3", DLBENCH_POD_HOSTS="127.0.0.1,localhost"
    )
    assert ends(started) == [1, 1]


@pytest.mark.parametrize(
    "said",
    [b"[" * 100_000 + b"\n", b"x" * (start_pod.MAX_LINE_BYTES + 1), b"\xff\n", b"7\n",
     b'{"to": "localhost", "index": 1}\n', b'{"to": "localhost", "index": [], "offer": 1}\n',
     b'{"to": "localhost", "index": 0, "offer": 1}\n'],
    ids=["nested", "endless", "no text", "no object", "no offer", "no number", "pod 0"],
)  # fmt: skip
def test_a_stranger_is_turned_away_and_holds_nobody_up(start, said):
    program = [sys.executable, "workflow_scripts/start_pod.py", "--meet"]
    start(program, indices=[0])
    with stranger(start.port) as connection:
        try:
            connection.sendall(said)
            assert connection.recv(1) == b""
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


def test_all_pods_meet(start):
    program = [sys.executable, "workflow_scripts/start_pod.py", "--meet"]
    assert ends(start(program)) == [0, 0]


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
