"""progress: how far long work is, in lines or as a bar."""

import os
import pty

import pytest

from dlbench.common import terminal
from dlbench.common.terminal import Progress


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
