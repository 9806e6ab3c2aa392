"""copies: how they are started, what they must have, and how they wait for one another."""

import dataclasses
import json
import os
import threading
import time
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.common import plugins
from dlbench.log import event_log
from dlbench.starting import start_command
from dlbench.study.runs import Run
from dlbench.trainer import copies as trainer_copies
from dlbench.trainer.copies import Copy

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=5, copies_per_node=2)


def changed(**changes):
    return dataclasses.replace(RUN, **changes)


def test_copies_are_started_outside_of_the_container(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[3])
    inside = ["apptainer", "exec", "image.sif", "python", "workflow_scripts/train.py"]
    run = changed(copies_per_node=4, strategy="mirrored", devices_per_node=2, threads_per_device=3)
    program = ["python3", "workflow_scripts/start_processes.py", "--copies", "4"]
    for device, each in {"gpu": ["--gpus-each", "2"], "cpu": ["--cores-each", "6"]}.items():
        command = start_command.copies_command(run, inside, "python3", device)
        assert command == [*program, *each, "--", *inside]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"strategy": "mirrored", "devices_per_node": 2}, None),
        ({"copies_per_node": 1, "strategy": "horovod", "launcher": "mpirun", "nodes": 2}, None),
        ({"strategy": "horovod", "launcher": "horovodrun"}, "horovod with launcher horovodrun"),
        ({"launcher": "srun"}, "single with launcher srun"),
        ({"nodes": 2}, "copies_per_node packs one node; found 2 nodes"),
    ],
)
def test_only_one_process_on_one_node_can_be_packed(changes, reason):
    run = changed(**changes)
    strategy = plugins.load("tensorflow/strategies", run.strategy).Strategy
    found = trainer_copies.unsupported(run, strategy)
    assert found is None if reason is None else reason in found


def mine(device="gpu", environ=(), **changes):
    return trainer_copies.this_copy(changed(**changes), device, "train.jsonl", dict(environ))


def test_a_copy_is_known_by_its_number():
    assert mine(environ={"DLBENCH_COPY": "1"}) == Copy(1, 2, Path("train.jsonl"))
    assert mine(copies_per_node=1) == Copy(0, 1, Path("train.jsonl"))


@pytest.mark.parametrize(
    ("copy", "copies", "found"),
    [(None, 2, "not set"), ("2", 2, "2"), ("x", 2, "x"), ("", 2, "not set"), ("1", 1, "1")],
)
def test_a_process_that_was_not_started_as_a_copy_of_the_run_is_refused(copy, copies, found):
    with pytest.raises(Error) as error:
        mine(environ={} if copy is None else {"DLBENCH_COPY": copy}, copies_per_node=copies)
    assert f"copies_per_node is {copies}, but DLBENCH_COPY is {found}" in str(error.value)
    assert "start the trainer by start_processes.py --copies" in str(error.value)


def test_a_copy_on_cpus_needs_cores_of_its_own():
    cores = len(os.sched_getaffinity(0))
    assert mine("cpu", {"DLBENCH_COPY": "0"}, threads_per_device=cores).number == 0
    with pytest.raises(Error) as error:
        mine("cpu", {"DLBENCH_COPY": "0"}, threads_per_device=cores + 1)
    assert f"copy 0 must have {cores + 1} core(s) of its own and has {cores}" in str(error.value)
    assert f"--copies 2 --cores-each {cores + 1}" in str(error.value)


def test_a_copy_on_gpus_must_see_no_others(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    Copy(1, 4, Path()).check_gpus(visible=2, used=2)
    Copy(0, 1, Path()).check_gpus(visible=8, used=1)
    with pytest.raises(Error) as error:
        Copy(1, 4, Path()).check_gpus(visible=8, used=2)
    assert "copy 1 must see 2 GPU(s) of its own and sees 8" in str(error.value)
    assert "CUDA_VISIBLE_DEVICES=unset" in str(error.value)


# Meeting.


def meeting(path, number, count=2, after_s=0.0):
    """Start a copy that reaches the barrier later; returns its thread."""

    def come():
        log = event_log.EventLog(event_log.rank_path(path, number))
        time.sleep(after_s)
        Copy(number, count, path).wait_for_copies(log)
        log.close()

    thread = threading.Thread(target=come, daemon=True)
    thread.start()
    return thread


def events(path, number):
    return {event["event"]: event for event in event_log.read(event_log.rank_path(path, number))}


def test_all_copies_wait_for_the_last_one_and_the_logs_say_how_long(tmp_path):
    path = tmp_path / "train.jsonl"
    threads = [meeting(path, number, 3, after_s) for number, after_s in enumerate((0, 0.1, 0.4))]
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    waited = [events(path, number)["met"]["waited_s"] for number in range(3)]
    assert waited[0] > 0.3
    assert 0.2 < waited[1] < waited[0]
    assert waited[2] < 0.1
    for number in range(3):
        ready, met = (events(path, number)[name] for name in ("ready", "met"))
        assert met["t_s"] - ready["t_s"] == pytest.approx(met["waited_s"], abs=1e-5)


def test_one_alone_waits_for_nobody_and_says_nothing(tmp_path):
    log = event_log.EventLog(tmp_path / "train.jsonl")
    Copy(0, 1, tmp_path / "train.jsonl").wait_for_copies(log)
    assert log.content() == b""


def test_copies_that_do_not_come_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer_copies, "PATIENCE_S", 0.2)
    path = tmp_path / "train.jsonl"
    # It has a log, but is not there yet; of copy 3 there is nothing.
    rank1 = {"event": "begin", "t_utc": event_log.utc_now()}
    event_log.rank_path(path, 1).write_text(f"{json.dumps(rank1)}\n")
    event_log.rank_path(path, 2).write_text('{"event": "ready", "t_s": 0.1}\n{"event": "rea')
    log = event_log.EventLog(path)
    with pytest.raises(Error) as error:
        Copy(0, 4, path).wait_for_copies(log)
    assert str(error.value) == (
        "copy 0 waited 0.2 s before its first step for copy 1 and 3, in vain"
    )
    assert "met" not in events(path, 0)
