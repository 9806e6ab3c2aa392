"""start_session: what is done once before the first run of a session."""

from pathlib import Path

import pytest

from dlbench.campaign import start_session
from dlbench.cluster import cluster_job
from dlbench.plan import planning
from dlbench.records import run_record, sessions
from support.runs.made_runs import SETTINGS


@pytest.fixture
def plan(study):
    return planning.make_plan(SETTINGS)


def test_the_session_is_the_current_one_and_a_damaged_log_is_put_aside(plan, capsys):
    run_id = plan.study.runs[0].id
    log = run_record.folder(run_id) / "train.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("no log\n")
    damaged = planning.make_plan(SETTINGS)
    session = sessions.new()
    start_session.start(damaged, session)
    assert sessions.current() == session and sessions.file(session["id"]).is_file()
    assert not log.exists() and len(list(log.parent.glob("train.attempt*"))) == 1
    assert f"{run_id}: " in capsys.readouterr().err


def test_jobs_of_an_earlier_start_are_cancelled_first(plan, program, capsys):
    program("squeue")
    program("sacct")
    program("scancel", script='#!/bin/sh\necho "$*" >cancelled\n')
    cluster_job.MEMORY.mkdir(parents=True)
    (cluster_job.MEMORY / "7").touch()
    start_session.start(plan, sessions.new(), "slurm")
    assert Path("cancelled").read_text() == "7\n"
    assert "cancelled jobs that an earlier start left behind: 7" in capsys.readouterr().out
