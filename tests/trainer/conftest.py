"""Fixtures of several test files."""

import pytest

from support.campaigns.temporary_folder import temporary_folder as temporary_folder
from support.trainers.training_runs import LEARNING, convert, train


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    return convert("digits", tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="session")
def one_process(digits, tmp_path_factory):
    log = tmp_path_factory.mktemp("single") / "train.jsonl"
    finished = train(log, digits, batch_per_device=64, **LEARNING)
    assert finished.returncode == 0, finished.stderr
    return log
