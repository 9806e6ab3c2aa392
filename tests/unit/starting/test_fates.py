"""fates: what ended runs without a result, in the words of their logs and of the scheduler."""

import os

import pytest

from dlbench.campaign import status
from dlbench.log import event_log
from dlbench.records import run_record
from dlbench.starting import fates
from support.runs.made_runs import finish, quiet, resume, write

JOB = {"scheduler": "slurm", "id": "17"}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Makes a Slurm that says something of its jobs; `asked` has the lines of its questions."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    def make(answer):
        (tmp_path / "bin").mkdir(exist_ok=True)
        for name in ("sacct", "squeue"):
            path = tmp_path / "bin" / name
            path.write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/asked\nprintf "{answer}"\n')
            path.chmod(0o755)
        return tmp_path / "asked"

    return make


def of_jobs(asked):
    """The questions about single jobs; what waits in the queue is another one."""
    lines = asked.read_text().splitlines() if asked.exists() else []
    return [line for line in lines if " --jobs " in line]


def numbers(study):
    counts = status.report(study)["combinations"]
    return {name: number for name, number in counts.items() if number and name != "total"}


def reasons(study):
    return [(r["state"], r["message"], r["runs"]) for r in status.report(study)["reasons"]]


def interrupted(run, **values):
    write(run, **values)
    quiet(run, 1000)


def test_an_interrupted_run_says_how_the_scheduler_ended_its_job(study, slurm):
    slurm("17|OUT_OF_MEMORY\\n18|OUT_OF_MEMORY\\n19|TIMEOUT\\n")
    for run, job_id in zip(study.runs, ("17", "18", "19"), strict=False):
        interrupted(run, job=JOB | {"id": job_id})
    assert numbers(study) == {"interrupted": 3, "pending": 1}
    assert reasons(study) == [
        ("interrupted", "Slurm ended jobs 17, 18: OUT_OF_MEMORY", 2),
        ("interrupted", "Slurm ended job 19: TIMEOUT", 1),
    ]


def test_the_scheduler_is_asked_once_for_all_jobs_and_not_at_all_without_any(study, slurm):
    asked = slurm("")
    interrupted(study.runs[0])
    finish(study.runs[1], 60, job=JOB)
    assert reasons(study) == [("interrupted", "its log stops without an end", 1)]
    assert of_jobs(asked) == []
    for run, job_id in zip(study.runs[2:], ("18", "17"), strict=True):
        interrupted(run, job=JOB | {"id": job_id})
    numbers(study)
    questions = of_jobs(asked)
    assert [line.split()[0] for line in questions] == ["squeue", "sacct"]
    assert all(line.endswith("--jobs 17,18") for line in questions)


def test_a_run_whose_job_lives_is_running_whatever_its_log_says(study, slurm):
    slurm("17|PENDING\\n18|RUNNING\\n")
    interrupted(study.runs[0], job=JOB)
    event_log.keep_aside(write(study.runs[1], job=JOB | {"id": "18"}))
    assert numbers(study) == {"running": 2, "pending": 2}
    waiting, again = status.report(study)["running"]
    assert (waiting["step"], waiting["message"]) == (2, "Slurm still has job 17: PENDING")
    assert (again["step"], again["message"]) == (None, "Slurm still has job 18: RUNNING")
    assert "for 3 s, Slurm still has job 17: PENDING" in "\n".join(
        status.lines(status.report(study))
    )


@pytest.mark.parametrize("name", ["slurm", "nosuchscheduler"])
def test_where_the_scheduler_does_not_know_the_log_alone_counts(study, slurm, name):
    slurm("")
    interrupted(study.runs[0], job=JOB | {"scheduler": name})
    assert reasons(study) == [("interrupted", "its log stops without an end", 1)]


def test_a_run_that_was_launched_twice_is_that_of_its_last_job(study, slurm):
    slurm("17|COMPLETED\\n18|NODE_FAIL\\n")
    run = study.runs[0]
    write(run, steps=10, job=JOB)
    log = resume(run, lines_kept=9, seconds=10, at=1000, job=JOB | {"id": "18"})
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    quiet(run, 1000)
    assert reasons(study) == [("interrupted", "Slurm ended job 18: NODE_FAIL", 1)]


def test_a_pending_run_says_what_ended_its_last_attempt(study, slurm):
    slurm("18|TIMEOUT\\n")
    killed, stopped, forgotten, _ = study.runs
    event_log.keep_aside(write(killed, 40, "failed", "hung", at=0))
    event_log.keep_aside(write(killed, at=100, job=JOB | {"id": "18"}))
    event_log.keep_aside(write(stopped))
    finish(forgotten, 20, "oom", "no memory")
    run_record.forget(forgotten.id)
    assert numbers(study) == {"pending": 4}
    assert set(reasons(study)) == {
        ("pending", "attempt 2: Slurm ended job 18: TIMEOUT", 1),
        ("pending", "attempt 1: its log stops without an end", 1),
        ("pending", "attempt 1: oom: no memory", 1),
    }


def test_the_log_that_a_killed_job_left_open_is_its_last_attempt(study, slurm):
    slurm("17|OUT_OF_MEMORY\\n")
    run = study.runs[0]
    event_log.keep_aside(write(run, 40, "failed", "hung"))
    log = write(run, at=100, steps=10, job=JOB)
    log.rename(log.with_name("train.open.jsonl"))
    assert reasons(study) == [("pending", "attempt 2: Slurm ended job 17: OUT_OF_MEMORY", 1)]
    assert status.report(study)["cost"]["used_node_hours"] == pytest.approx(47 / 3600)


# Attempts of one start.

SESSION = "a1"


def attempts(run, *job_ids, session=SESSION):
    for number, job_id in enumerate(job_ids):
        log = write(run, at=100 * number, job=JOB | {"id": job_id})
        text = log.read_text().replace(
            '{"event": "launch"', f'{{"event": "launch", "session": {{"id": "{session}"}}', 1
        )
        log.write_text(text)
        event_log.keep_aside(log)


def earlier(run, session=SESSION):
    return fates.EarlierAttempts(run_record.folder(run.id), session)


def test_a_preemption_uses_up_no_attempt_and_the_last_cause_is_shown_with_the_others(study, slurm):
    slurm("17|PREEMPTED\\n18|CANCELLED by 0\\n19|OUT_OF_MEMORY\\n")
    run = study.runs[0]
    attempts(run, "17", "18", "19")
    found = earlier(run)
    assert found.interrupted == 2
    description = (
        "attempt 1: Slurm ended job 17: PREEMPTED; attempt 2: Slurm ended job 18: CANCELLED by 0; "
        "attempt 3: Slurm ended job 19: OUT_OF_MEMORY"
    )
    message = f"its job 19 was ended: OUT_OF_MEMORY ({description})"
    assert found.verdict() == ("oom", message, False)
    assert ("pending", description, 1) in reasons(study)


def test_attempts_of_earlier_starts_count_no_longer(study, slurm):
    slurm("17|PREEMPTED\\n18|FAILED\\n")
    run = study.runs[0]
    attempts(run, "17", session="before")
    assert earlier(run).describe() == "" and earlier(run).interrupted == 0
    attempts(run, "18")
    assert earlier(run).describe() == "attempt 2: Slurm ended job 18: FAILED"
    assert earlier(run).verdict() is None and earlier(run).interrupted == 0
