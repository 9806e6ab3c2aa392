"""run_tables: a run's own tables are made where one is missing, or of another log or version."""

import json
import shutil

import pytest

from dlbench.analysis import run_tables
from dlbench.common.files import read_json, sha256
from dlbench.records import run_record
from dlbench.tables import cells, parquet_files
from support.runs.made_runs import finish


class Tables:
    """The tables of a run that ended, and whether they were made again."""

    def __init__(self, run):
        self.run, self.place = run, run_record.folder(run.id)
        self.ensure()

    def ensure(self):
        run_tables.ensure_run_tables(self.run.id, sha256(self.place / "train.jsonl"))

    def are_made_again(self):
        before = self._inodes()
        self.ensure()
        return self._inodes() != before

    def _inodes(self):
        paths = (self.place / f"{name}.parquet" for name in cells.OF_RUN)
        return [path.stat().st_ino for path in paths if path.exists()]


@pytest.fixture
def tables(study):
    finish(study.runs[0], 60)
    return Tables(study.runs[0])


def test_tables_that_are_whole_and_of_the_log_stay_as_they_are(tables):
    assert not tables.are_made_again()


@pytest.mark.parametrize("name", cells.OF_RUN)
def test_a_table_that_is_missing_cut_short_or_of_another_log_is_made_again(tables, name):
    path = tables.place / f"{name}.parquet"
    content = path.read_bytes()
    path.unlink()
    assert tables.are_made_again()
    path.write_bytes(content[:-1])
    assert tables.are_made_again()
    path.write_bytes(content + b"of another log")
    assert tables.are_made_again()
    assert path.read_bytes() == content
    assert not tables.are_made_again()


def test_tables_of_a_log_that_was_trained_anew_are_made_again(tables):
    (tables.place / "train.jsonl").unlink()
    finish(tables.run, 90)
    assert tables.are_made_again()


def test_tables_of_an_earlier_version_are_made_again(tables, monkeypatch):
    monkeypatch.setattr(parquet_files, "SCHEMA_VERSION", parquet_files.SCHEMA_VERSION + 1)
    assert tables.are_made_again()
    assert not tables.are_made_again()


def test_tables_without_a_whole_stamp_are_made_again(tables):
    path = tables.place / run_tables.STAMP
    stamp = read_json(path)
    del stamp["digest"]  # as versions of before wrote it
    for text in ("", "[]", '{"log_sha256": "a"}', json.dumps(stamp)):
        path.write_text(text)
        assert tables.are_made_again()
    path.unlink()
    assert tables.are_made_again()


def test_tables_that_are_copied_with_their_stamp_are_believed(tables, tmp_path):
    copies = tmp_path / "copies"
    copies.mkdir()
    for name in run_tables.FILES:
        shutil.move(tables.place / name, copies)
    for name in run_tables.FILES:
        shutil.copy(copies / name, tables.place)
    assert not tables.are_made_again()


@pytest.mark.parametrize("name", cells.OF_RUN)
def test_a_table_with_a_flipped_bit_is_made_again_from_the_log_when_it_is_read(tables, name):
    path = tables.place / f"{name}.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:300] + bytes([content[300] ^ 4]) + content[301:])
    assert not tables.are_made_again()  # its size is right
    whole = run_tables.run_table(tables.place, name)
    assert path.read_bytes() == content
    assert whole.equals(parquet_files.read(path, run_tables.RUN_TABLES[name]))


@pytest.mark.parametrize("damaged", ["train.jsonl", "run.json"])
def test_a_damaged_table_is_not_made_from_a_damaged_log_or_record(tables, damaged):
    path = tables.place / "steps.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    log = tables.place / damaged
    log.write_text(log.read_text().replace("0.5", "0.4"))
    with pytest.raises(parquet_files.TableError, match=f"steps.parquet .*{damaged}: "):
        run_tables.run_table(tables.place, "steps")
