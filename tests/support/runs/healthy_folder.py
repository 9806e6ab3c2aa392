"""The folder of a workflow with two healthy runs, and the doctor that examines it."""

import os
import time
from pathlib import Path

import pytest

from dlbench.analysis import run_tables
from dlbench.campaign import doctor
from dlbench.common.files import sha256
from dlbench.records import run_record
from dlbench.study import trainer_environments
from support.programs import in_process
from support.runs.ended_runs import ONE, TWO, finish


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The folder of a workflow with two healthy runs."""
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)
    for run in (ONE, TWO):
        place = finish(run)
        run_tables.ensure_run_tables(run.id, sha256(place / "train.jsonl"))
    return tmp_path


@pytest.fixture
def place(here):
    return run_record.folder(ONE.id)


def listing(folder="results"):
    """Every file with its content."""
    return {str(p): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def only(**how):
    (finding,) = doctor.examine(**how)
    return finding


def old(path):
    """Set the modification time of a file to an hour ago."""
    then = time.time() - 3600
    os.utime(path, (then, then))


def program(*arguments):
    return in_process.dlbench("doctor", *arguments)
