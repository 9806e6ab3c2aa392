"""attempts: those that were killed together with their supervisor."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.log import attempts, event_log
from dlbench.starting import fates
from dlbench.study.runs import Run
from support.runs.made_runs import write

RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=100, warmup_steps=1)


@pytest.fixture
def log(project):
    """The log of a run in Slurm's job 17 that goes on."""
    path = write(RUN, job={"scheduler": "slurm", "id": "17"})
    attempts.link_open_log(path)
    return path


def aside(log):
    return log.with_name("train.attempt1.jsonl")


def end(log, status="ok"):
    written = event_log.EventLog(log)
    written.write("run_end", t_utc=event_log.utc_now(), status=status, message="")
    attempts.unlink_open_log(log)


def answers_of_slurm(program, state):
    program("sacct", f"17|{state}")
    program("squeue")


def test_the_log_of_a_killed_job_is_moved_aside_though_snakemake_removed_it(log):
    content = log.read_bytes()
    log.unlink()
    attempts.rescue(log)
    assert aside(log).read_bytes() == content and not log.with_name(attempts.OPEN).exists()


def test_a_log_that_is_still_there_is_moved_aside_once_unless_it_came_to_its_end(log):
    content = log.read_bytes()
    attempts.rescue(log)
    attempts.rescue(log)
    assert [path.name for path in log.parent.iterdir()] == [aside(log).name]
    log.write_bytes(content)
    end(log)
    attempts.rescue(log)
    assert sorted(path.name for path in log.parent.iterdir()) == [aside(log).name, log.name]


@pytest.mark.parametrize(("status", "aside"), [("ok", 1), ("failed", 1), ("skipped", 0)])
def test_what_an_ended_attempt_measured_is_moved_aside(log, status, aside):
    end(log, status)
    attempts.put_measured_aside(log)
    assert len(attempts.kept_logs(log.parent)) == aside == (not log.exists())


@pytest.mark.parametrize(
    ("state", "status"),
    [("OUT_OF_MEMORY", "oom"), ("TIMEOUT", "timeout"), ("NODE_FAIL", None), ("COMPLETED", None)],
)
def test_what_would_repeat_itself_becomes_a_result(log, program, state, status):
    attempts.rescue(log)
    answers_of_slurm(program, state)
    said = fates.EarlierAttempts(log.parent, None).verdict()
    assert (said and said[0]) == status
    assert said is None or ("job 17" in said[1] and state in said[1])


@pytest.mark.parametrize(
    ("state", "status", "end"),
    [("TIMEOUT", "failed", "; no step yet"), ("OUT_OF_MEMORY", "oom", "")],
)
def test_a_job_that_ran_out_of_time_before_the_first_step_measured_nothing(
    log, program, state, status, end
):
    log.unlink()
    write(RUN, job={"scheduler": "slurm", "id": "17"}, steps=0)
    attempts.rescue(log)
    answers_of_slurm(program, state)
    earlier = fates.EarlierAttempts(log.parent, None)
    message = f"its job 17 was ended: {state} ({earlier.describe()}){end}"
    assert earlier.verdict() == (status, message, status == "failed")
    theirs = earlier.verdict(logs_steps=False)  # another program's are read at its end
    assert theirs is not None and theirs[0] == {"TIMEOUT": "timeout"}.get(state, status)


def test_without_a_word_of_the_scheduler_there_is_no_verdict(log, program):
    assert fates.EarlierAttempts(log.parent, None).verdict() is None  # no attempt was kept aside
    attempts.rescue(log)
    for name in ("sacct", "squeue"):
        program(name, script="#!/bin/sh\nexit 1\n")
    assert fates.EarlierAttempts(log.parent, None).verdict() is None


def test_a_file_system_without_hard_links_keeps_no_second_name(log, monkeypatch):
    def refuse(*_):
        raise PermissionError("no links here")

    attempts.unlink_open_log(log)
    monkeypatch.setattr(attempts.os, "link", refuse)
    attempts.link_open_log(log)
    attempts.rescue(log)
    assert aside(log).is_file()


def test_a_run_that_another_process_trains_is_left_to_it(tmp_path):
    log = tmp_path / "runs/run/train.jsonl"
    holds = "import sys; from pathlib import Path; from dlbench.log import attempts\n"
    holds += "with attempts.lock(Path(sys.argv[1])): print('held', flush=True); input()"
    environment = os.environ | {"PYTHONPATH": str(Path(attempts.__file__).parents[2])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment}
    with subprocess.Popen([sys.executable, "-c", holds, log], **pipes) as other:
        assert other.stdout.readline() == b"held\n"
        refused = pytest.raises(Error, match="run is being trained by another process")
        with refused, attempts.lock(log):
            pass
        other.kill()
    with attempts.lock(log):  # a lock ends with its owner, however that ended
        assert list(log.parent.iterdir()) == []
