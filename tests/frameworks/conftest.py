"""Fixtures of several test files: data, and the Pythons of the frameworks."""

import pytest

from dlbench.study import trainer_environments
from dlbench.trainer import engine
from support.campaigns.temporary_folder import temporary_folder as temporary_folder
from support.machines.paths import REPOSITORY
from support.trainers import framework_runs
from support.trainers.training_runs import convert


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    return convert("digits", tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="session")
def python():
    """A function that gives the Python of a framework's environment."""

    def of(framework):
        path = REPOSITORY / trainer_environments.trainer_python(engine.environment(framework))
        if not path.exists():
            pytest.skip(f"{path} is not there; dlbench environment makes it")
        return path

    return of


@pytest.fixture(scope="module")
def framework(request):
    return request.module.FRAMEWORK


@pytest.fixture(scope="module")
def own(framework, python):
    return python(framework.name)


@pytest.fixture(scope="module")
def small(framework, tmp_path_factory):
    """Flags that name a folder with the model `small_model`."""
    return framework_runs.small_model(framework, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def one_device(framework, own, digits, tmp_path_factory):
    """The log of one device with the batch of two."""
    log = tmp_path_factory.mktemp("one") / "train.jsonl"
    fields = {**framework_runs.ON_DIGITS, "batch_per_device": 64, "evaluate": "yes"}
    framework.trained(log, own, digits, steps=20, **fields)
    return log
