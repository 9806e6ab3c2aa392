"""Folders in which studies are planned."""

import shutil

import pytest

from dlbench.plan import planning
from dlbench.study import trainer_environments
from support.machines.paths import REPOSITORY
from support.studies.planned_runs import STUDY


@pytest.fixture
def plan(project):
    return planning.make_plan(STUDY)


@pytest.fixture
def alone(here):
    """A workflow folder with the lock file of an environment in which nothing is installed."""
    (here / "envs" / "train").mkdir(parents=True)
    shutil.copy(REPOSITORY / "envs/train/uv.lock", here / "envs/train")
    trainer_environments.has_package.cache_clear()
    yield
    trainer_environments.has_package.cache_clear()
