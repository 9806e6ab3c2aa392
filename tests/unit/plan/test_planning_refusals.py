"""planning: what is refused before anything is done, and in which words."""

import os
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.plan import planning
from support.studies.planned_runs import STUDY


def test_an_unknown_run_is_named_with_the_nearest(plan):
    known = next(iter(plan.runs))
    with pytest.raises(Error, match=f"no run .*did you mean .*{known}"):
        plan.spec_json(known[:-1])


@pytest.mark.parametrize("key", ["manual_dir", "store"])
def test_a_folder_of_data_that_is_not_there_is_named(alone, key):
    with pytest.raises(Error, match=rf"data\.{key}: there is no folder nowhere; make it"):
        planning.make_plan(STUDY | {"data": STUDY["data"] | {key: "nowhere"}})


def test_terms_that_nobody_accepted_are_named_before_anything_is_fetched(alone):
    block = STUDY["matrix"][0] | {"model": "resnet50", "dataset": ["synthetic", "imagenet"]}
    study = STUDY | {"matrix": [block]}
    with pytest.raises(Error, match=r"put imagenet into data\.terms_accepted"):
        planning.make_plan(study)
    accepted = STUDY["data"] | {"terms_accepted": ["imagenet"]}
    assert planning.make_plan(study | {"data": accepted}).datasets == ["imagenet"]
    Path("results/data/imagenet").mkdir(parents=True)
    Path("results/data/imagenet/source.json").write_text("{}")  # fetched, by one who had
    assert planning.make_plan(study).datasets == ["imagenet"]


def test_a_file_of_published_numbers_that_cannot_be_read_is_named(alone):
    Path("references.csv").write_text("point,value\n")
    with pytest.raises(Error, match=r"references\.csv, line 1: expected the columns point,"):
        planning.make_plan(STUDY | {"references": [{"path": "references.csv"}]})


@pytest.mark.parametrize(
    ("free_files", "free_blocks", "message"),
    [(3, 10_000, "3 more files can be made"), (1000, 0, "0 bytes are free")],
)
def test_a_start_on_a_full_disk_says_so_before_anything_is_written(
    tmp_path, monkeypatch, free_files, free_blocks, message
):
    monkeypatch.chdir(tmp_path)
    planning.check_folders(writes=True)
    full = list(os.statvfs(tmp_path))
    full[4], full[5], full[7] = free_blocks, 4000, free_files  # f_bavail, f_files, f_favail
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result([*full[:6], 0, *full[7:]]))
    with pytest.raises(Error, match=f"the disk of {tmp_path} is full: {message}.*nothing was"):
        planning.check_folders(writes=False)
