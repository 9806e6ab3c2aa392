"""Tables and figures of another study that are about to be replaced are named."""

import pytest

from dlbench.plan import replaced_tables


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(content):
        replaced_tables.RUNS.parent.mkdir(parents=True)
        replaced_tables.RUNS.write_bytes(content)

    return write


TABLE = b"run_id,study,timing_source\na,log,imported\nb,first,measured\n"


def test_tables_of_another_study_are_said_to_be_replaced(write):
    write(TABLE)
    (line,) = replaced_tables.lines("second")
    assert "are those of the study first; those of second take their place" in line
    assert "dlbench partial --output FOLDER" in line
    assert not list(replaced_tables.lines("first"))


@pytest.mark.parametrize("content", [b"", b"run_id\na\n", b"\xff\xfe\0", b"study\n"])
def test_tables_that_name_no_study_are_replaced_without_a_word(write, content):
    write(content)
    assert not list(replaced_tables.lines("second"))


def test_where_there_are_no_tables_nothing_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not list(replaced_tables.lines("first"))
