"""start_session: what is done once before the first run of a session."""

from dlbench.campaign import start_session
from dlbench.plan import planning
from dlbench.records import run_record, sessions
from support.runs.made_runs import SETTINGS


def test_the_session_is_the_current_one_and_a_damaged_log_is_put_aside(study, capsys):
    run_id = study.runs[0].id
    log = run_record.folder(run_id) / "train.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("no log\n")
    damaged = planning.make_plan(SETTINGS)
    session = sessions.new()
    start_session.start(damaged, session)
    assert sessions.current() == session and sessions.file(session["id"]).is_file()
    assert not log.exists() and len(list(log.parent.glob("train.attempt*"))) == 1
    assert f"{run_id}: " in capsys.readouterr().err
