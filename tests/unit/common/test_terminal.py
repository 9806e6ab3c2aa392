"""terminal: no control characters, and how far long work is."""

import os
import pty

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.campaign import status
from dlbench.common import terminal
from dlbench.common.command_line import run_program
from dlbench.common.terminal import Progress
from dlbench.log import event_log
from dlbench.plan import standing
from dlbench.starting import run_lines, supervisor
from support.trainers.watched_runs import DATE, watched

CLEARS = "\x1b[2J\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x9b5m\x08\rover\x7f"


def test_escape_sequences_go_and_words_stay():
    assert terminal.plain(CLEARS) == "red linkover"
    assert terminal.plain("ü → \t漢\nline") == "ü → \t漢\nline"


@given(st.text(st.one_of(st.sampled_from("\x1b[]0;m\x07\x9b\\?2JH"), st.characters()), max_size=60))
def test_no_text_has_control_characters_afterwards(text):
    found = terminal.plain(text)
    assert all(c.isprintable() or c in "\t\n" or ord(c) > 0x9F for c in found)
    assert terminal.plain(found) == found


@given(st.text(max_size=400), st.integers(20, 200))
def test_a_message_is_one_line_of_limited_length(text, most):
    found = terminal.message(text, most)
    assert len(found) <= most
    assert len(found.splitlines()) <= 1 or not text.isascii()


def test_a_long_message_keeps_its_beginning_and_its_reason():
    begins, inputs = (
        "Exception encountered when calling Sequential.call().",
        "  - inputs=...\n" * 90,
    )
    said = f"{begins}\n\n\x1b[1mInput 0 of layer\x1b[0m\n\n{inputs}  the reason is here"
    found = terminal.message(said)
    assert found.startswith(f"{begins} Input 0 of") and found.endswith("the reason is here")
    assert len(found) <= terminal.MAX_MESSAGE


@pytest.mark.usefixtures("impatient")
def test_what_a_trainer_says_last_is_relayed_and_recorded_without_codes_and_secrets(
    tmp_path, capfd
):
    said = f"{CLEARS} cannot reach https://me:hunter2@host"
    run = watched(tmp_path, f"print({said!r}, file=sys.stderr); sys.exit(3)")
    shown = last_words(run, capfd)
    assert "over cannot reach https://(hidden)@host" in shown
    assert not {"\x1b", "\x07", "\r", "\x9b"} & set(shown)
    assert "hunter2" not in run.log.read_text()


@pytest.mark.usefixtures("impatient")
def test_what_a_trainer_writes_into_its_log_is_relayed_without_codes(tmp_path, capfd):
    end = f"write('run_end', status='failed', message={CLEARS!r}, t_utc={DATE!r})\n"
    assert "failed (red linkover)" in last_words(watched(tmp_path, end), capfd)


def last_words(run, capfd):
    """What is printed of a run, its result included."""
    assert supervisor.supervise(run)
    end = event_log.last_run_end(run.log)
    run_lines.report_result(run.position, run.label, run.log, {"summary": {}, **end}, 0)
    return capfd.readouterr().err


def test_status_shows_no_codes(capsys):
    report = {
        "study": CLEARS, "site": CLEARS, "combinations": dict.fromkeys(standing.STATES, 0)
        | {"total": 1, "excluded": 0}, "running": [], "runs": [],
        "reasons": [{"runs": 1, "state": "failed", "message": CLEARS}],
        "cost": {"aside_node_hours": 0, "used_node_hours": 1, "left_s": 1, "estimates": {}},
        "sessions": {"number": 2, "sentinels": 3, "verdicts": {}},
        "largest_batches": [{"label": "a", "state": "none", "batch_per_device": None, "tries": [],
                             "reason": CLEARS}],
    }  # fmt: skip
    status.print_report(report)
    shown = capsys.readouterr().out
    assert "failed       red linkover" in shown
    assert "\x1b" not in shown


def test_the_error_that_ends_a_program_shows_no_codes(capsys):
    def fails():
        raise OSError(CLEARS)

    with pytest.raises(SystemExit, match=r"^error: red linkover$"):
        run_program(fails)


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(terminal, "EVERY_S", 0.0)
    monkeypatch.setattr(terminal, "REDRAWN_S", 0.0)


def test_short_work_says_nothing(capsys):
    Progress("photos: reading", 2).add()
    assert capsys.readouterr().err == ""


def test_without_a_terminal_there_are_lines_with_what_is_done_of_how_many(at_once, capsys):
    made = Progress("photos", 3)
    for _ in range(3):
        made.add()
    lines = capsys.readouterr().err.splitlines()
    counts = [line.rpartition(", ")[0] for line in lines]
    assert counts == ["photos: 1 of 3", "photos: 2 of 3", "photos: 3 of 3"]
    assert lines[-1] == "photos: 3 of 3, 0 s left"
    # Bytes decide when it ends.
    Progress("shards", 2, size_bytes=100).add(0, size_bytes=100)
    assert capsys.readouterr().err == "shards: 0 of 2, 0 s left\n"


def test_a_terminal_has_one_line_with_a_bar(at_once, monkeypatch):
    main, terminal = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        made = Progress("reading", 2)
        made.add()
        made.add()
        shown = ""
        while "\n" not in shown:
            shown += os.read(main, 1000).decode()
    monkeypatch.undo()
    os.close(main)
    assert "###############..............." in shown and "reading: 1 of 2, " in shown
    assert shown.count("\n") == 1 and shown.endswith("2 of 2, 0 s left\r\n")
