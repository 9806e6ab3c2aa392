"""Folders in which studies are planned."""

import shutil

import pytest

from dlbench.plan import planning
from dlbench.study import trainer_environments
from support.studies.planned_runs import STUDY


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A workflow folder with the environments of the project."""
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def plan(folder):
    return planning.make_plan(STUDY)


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A workflow folder with the lock file of an environment in which nothing is installed."""
    (tmp_path / "envs" / "train").mkdir(parents=True)
    lock = trainer_environments.ENVIRONMENTS / "train" / "uv.lock"
    shutil.copy(lock, tmp_path / "envs" / "train")
    monkeypatch.chdir(tmp_path)
    trainer_environments.has_package.cache_clear()
    yield
    trainer_environments.has_package.cache_clear()
