"""sessions: each start that trains is one, and its runs know it."""

import json
import subprocess
import sys

import pytest

from dlbench.common.files import write_json
from dlbench.log import event_fields, event_log
from dlbench.plan import planning, run_command
from dlbench.records import run_record, sessions
from support.machines.paths import REPOSITORY
from support.studies.planned_runs import STUDY


def started():
    session = sessions.new()
    sessions.start(session)
    return session


def test_files_that_are_made_again_name_the_last_list_that_has_them(project):
    first, second = "20261126T000000Z-a", "20261126T000001Z-b"
    for session, paths in (first, ["x", "y"]), (second, ["y"]):
        write_json(sessions.remade_file(session), {"paths": paths})
    sessions.remade_file("20261126T000002Z-c").write_text("{")
    last = {"x": str(sessions.remade_file(first)), "y": str(sessions.remade_file(second))}
    assert sessions.lists_of_remade() == last


def test_the_session_that_was_started_last_is_the_current_one_and_all_are_kept(project):
    assert sessions.current() is None
    first, second = started(), started()
    assert first["id"] != second["id"]
    assert sessions.current() == second
    kept = {path.stem for path in (project / sessions.FOLDER).iterdir()}
    assert kept == {"current", first["id"], second["id"]}


@pytest.mark.parametrize("content", ["{", "[]", '{"id": "x"}', "\udcff"])
def test_a_damaged_file_is_an_unknown_session(project, content):
    started()
    path = project / sessions.FOLDER / sessions.CURRENT
    path.write_text(content, errors="surrogateescape")
    assert sessions.current() is None


def test_it_travels_by_the_command_of_a_run_to_its_log_and_its_record(project):
    plan = planning.make_plan(STUDY)
    (run_id,) = (name for name in plan.runs if name.startswith("lenet5-synthetic-b8-single-1x1-r1"))
    assert "--session" not in " ".join(run_command.start_run_arguments(plan, run_id))
    session = started()
    arguments = run_command.start_run_arguments(planning.make_plan(STUDY), run_id)
    (flag,) = (w for w in arguments if w.startswith("--session="))
    start_run = REPOSITORY / "workflow_scripts" / "start_run.py"
    command = [sys.executable, start_run, "--log=train.jsonl", "--messages=messages", flag]
    command += [f"--spec={json.dumps(plan.run(run_id).values())}", "--skip=not here"]
    subprocess.run(command, check=True, capture_output=True)
    assert next(event_log.read("train.jsonl"))["session"] == session
    assert run_record.read("run.json")["provenance"]["session"] == session


@pytest.mark.parametrize("session", ['"x"', "{}", '{"id": 1}', '{"id": "x", "started_at": "now"}'])
def test_a_log_with_another_kind_of_session_is_refused(session):
    with pytest.raises(event_fields.LogError, match="launch: "):
        event_fields.parse_event(f'{{"event": "launch", "session": {session}}}'.encode())
    good = {"event": "launch", "session": {"id": "x", "host": None}}
    assert event_fields.parse_event(json.dumps(good).encode()) == good
