"""records_list: which records the list of all has as they are."""

import hashlib
import os
from pathlib import Path

from dlbench.plan import records_list
from dlbench.records import run_record


def test_a_record_is_listed_that_is_older_than_the_list_or_newer_and_the_same(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = run_record.folder("a") / "run.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert records_list.unlisted(["a"]) == ["a"]  # there is no list
    Path(records_list.PATH).write_text(f"{hashlib.sha256(b'{}').hexdigest()}  {path}\n")
    os.utime(path, (1, 1))
    assert records_list.unlisted(["a"]) == []
    os.utime(records_list.PATH, (0, 0))
    assert records_list.unlisted(["a"]) == []
    path.write_text("{ }")
    assert records_list.unlisted(["a"]) == ["a"]
