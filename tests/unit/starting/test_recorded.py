"""recorded: what a run measured outlives the job that it was measured in."""

import os
import shutil

import pytest

from dlbench.records import run_record
from dlbench.starting import fates
from dlbench.study import trainer_environments
from support.runs.ended_runs import ONE, TWO, finish

MESSAGES = run_record.RESULTS / "logs/train" / f"{TWO.id}.log"


def wanted(record):
    return record["run_id"] == TWO.id


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder of a run of two ranks whose job has just recorded it."""
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)
    place = finish(TWO)
    MESSAGES.parent.mkdir(parents=True)
    MESSAGES.write_text("what it printed")
    fates.link_results(place / "train.jsonl", MESSAGES)
    return place


def contents(place):
    return {path.name: path.read_bytes() for path in place.iterdir()}


def remove_outputs(place):
    """As Snakemake does before it starts a job again."""
    for path in (place / "train.jsonl", place / "run.json", MESSAGES):
        path.unlink()


@pytest.mark.parametrize("links", [True, False])
def test_what_snakemake_removed_is_put_back_to_the_last_byte(place, links, monkeypatch):
    def refuse(*_):
        raise PermissionError("no hard links here")

    if not links:
        shutil.rmtree(fates.FOLDER)
        monkeypatch.setattr(os, "link", refuse)
        fates.link_results(place / "train.jsonl", MESSAGES)
    before = contents(place)
    remove_outputs(place)
    assert fates.put_back(place / "train.jsonl", MESSAGES, wanted)
    assert contents(place) == before and MESSAGES.read_text() == "what it printed"


def test_what_stands_already_is_left_as_it_is(place):
    before = (place / "run.json").stat()
    assert fates.put_back(place / "train.jsonl", MESSAGES, wanted)
    assert (place / "run.json").stat().st_ino == before.st_ino


@pytest.mark.parametrize("name", ["run.json", "train.jsonl", "train.rank1.jsonl"])
def test_a_changed_byte_is_not_believed(place, name):
    remove_outputs(place)
    path = fates.FOLDER / TWO.id / name
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content.replace(b"0.5", b"0.4", 1))
    assert not fates.put_back(place / "train.jsonl", MESSAGES, wanted)
    assert not (place / "run.json").exists()


def test_what_is_not_wanted_is_put_aside_and_not_lost(place):
    rank_0, rank_1 = (contents(place)[f"train{rank}.jsonl"] for rank in ("", ".rank1"))
    remove_outputs(place)
    assert not fates.put_back(place / "train.jsonl", MESSAGES, lambda record: False)
    fates.put_aside(place / "train.jsonl")
    assert contents(place) == {
        "train.attempt1.jsonl": rank_0,
        "train.attempt1.rank1.jsonl": rank_1,
    }
    assert not (fates.FOLDER / TWO.id).exists()


def test_the_end_of_a_start_puts_back_what_is_missing_and_leaves_no_second_names(place):
    before = contents(place)
    remove_outputs(place)
    other = finish(ONE)
    fates.link_results(other / "train.jsonl", MESSAGES)
    fates.settle_links()
    assert contents(place) == before and MESSAGES.read_text() == "what it printed"
    assert not fates.FOLDER.exists()
    fates.settle_links()


def test_a_start_forgets_what_stands_only(place):
    fates.link_results(finish(ONE) / "train.jsonl", MESSAGES)
    remove_outputs(place)
    fates.forget_links()
    assert [path.name for path in fates.FOLDER.iterdir()] == [TWO.id]


def test_a_run_that_is_forgotten_or_deleted_is_not_put_back(place):
    log = contents(place)["train.jsonl"]
    remove_outputs(place)
    run_record.forget(TWO.id)
    assert (place / "train.attempt1.jsonl").read_bytes() == log
    assert not (fates.FOLDER / TWO.id).exists()
    fates.link_results(finish(ONE) / "train.jsonl", MESSAGES)
    shutil.rmtree(run_record.folder(ONE.id))
    fates.forget_links()
    assert not fates.FOLDER.exists()


def test_the_tries_of_a_search_have_no_second_names(place):
    shutil.rmtree(fates.FOLDER)
    elsewhere = run_record.RESULTS / "batches/search/b8"
    shutil.copytree(place, elsewhere)
    fates.link_results(elsewhere / "train.jsonl", MESSAGES)
    assert not fates.FOLDER.exists()
