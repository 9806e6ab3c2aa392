"""What several tests of data share: digits that are converted once, and where a file is fetched."""

import shutil

import pytest

from dlbench.data import convert_dataset, fetch_dataset


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    fetch_dataset.fetch("digits", folder, offline=True)
    return folder


@pytest.fixture(scope="session")
def digits_once(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    convert_dataset.convert("digits", source, folder)
    return folder


@pytest.fixture
def converted(digits_once, tmp_path):
    """A folder with the shards of the digits, as a copy."""
    return shutil.copytree(digits_once, tmp_path / "digits")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "source" / "data.bin"
