"""Folders in which studies are planned."""

import shutil

import pytest

from dlbench.plan import planning
from dlbench.study import trainer_environments
from support.studies.planned_runs import STUDY


@pytest.fixture
def plan(tmp_path, monkeypatch):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)
    return planning.make_plan(STUDY)


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A workflow folder with the lock file of an environment in which nothing is installed."""
    (tmp_path / "envs" / "train").mkdir(parents=True)
    shutil.copy(
        trainer_environments.ENVIRONMENTS / "train" / "uv.lock", tmp_path / "envs" / "train"
    )
    monkeypatch.chdir(tmp_path)
    trainer_environments.has_package.cache_clear()
    yield
    trainer_environments.has_package.cache_clear()
