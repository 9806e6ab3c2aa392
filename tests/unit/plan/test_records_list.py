"""records_list: which records the list of all has as they are."""

import hashlib
import os
from pathlib import Path

import pytest

from dlbench.plan import records_list
from dlbench.records import run_record


@pytest.fixture
def record(tmp_path, monkeypatch):
    """The record of a run, listed."""
    monkeypatch.chdir(tmp_path)
    path = run_record.folder("a") / "run.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    Path(records_list.PATH).write_text(f"{hashlib.sha256(b'{}').hexdigest()}  {path}\n")
    os.utime(path, (1, 1))
    return path


def test_without_a_list_no_record_is_listed(record):
    Path(records_list.PATH).unlink()
    assert records_list.unlisted(["a"]) == ["a"]


def test_a_record_that_is_older_than_the_list_is_listed(record):
    assert records_list.unlisted(["a"]) == []


def test_a_newer_record_is_listed_where_it_is_the_same(record):
    os.utime(records_list.PATH, (0, 0))
    assert records_list.unlisted(["a"]) == []
    record.write_text("{ }")
    assert records_list.unlisted(["a"]) == ["a"]
