"""The plan of a start: its files, the start of a session, tables that are replaced."""

import hashlib
import os
from pathlib import Path

from dlbench.plan import plan, planning
from dlbench.records import run_record, sessions
from support.runs.made_runs import SETTINGS


def test_a_record_is_listed_that_is_older_than_the_list_or_newer_and_the_same(here):
    path = run_record.folder("a") / "run.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert plan.unlisted(["a"]) == ["a"]  # there is no list
    Path(plan.RECORDS_LIST).write_text(f"{hashlib.sha256(b'{}').hexdigest()}  {path}\n")
    os.utime(path, (1, 1))
    assert plan.unlisted(["a"]) == []
    os.utime(plan.RECORDS_LIST, (0, 0))
    assert plan.unlisted(["a"]) == []
    path.write_text("{ }")
    assert plan.unlisted(["a"]) == ["a"]


TABLE = b"run_id,study,timing_source,source\na,log,megatron,x.log\nb,first,patterns,\n"


def test_tables_of_another_study_are_said_to_be_replaced(here):
    assert not list(plan.replaced_tables("first"))  # there are none
    plan.RUNS_TABLE.parent.mkdir(parents=True)
    plan.RUNS_TABLE.write_bytes(TABLE)
    (line,) = plan.replaced_tables("second")
    assert "are those of the study first; those of second take their place" in line
    assert "dlbench partial --output FOLDER" in line
    assert not list(plan.replaced_tables("first"))
    for names_no_study in (b"", b"run_id\na\n", b"\xff\xfe\0", b"study\n"):
        plan.RUNS_TABLE.write_bytes(names_no_study)
        assert not list(plan.replaced_tables("second"))


def test_the_session_is_the_current_one_and_a_damaged_log_is_put_aside(study, capsys):
    run_id = study.runs[0].id
    log = run_record.folder(run_id) / "train.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("no log\n")
    damaged = planning.make_plan(SETTINGS)
    session = sessions.new()
    damaged.start_session(session)
    assert sessions.current() == session and sessions.file(session["id"]).is_file()
    assert not log.exists() and len(list(log.parent.glob("train.attempt*"))) == 1
    assert f"{run_id}: " in capsys.readouterr().err
