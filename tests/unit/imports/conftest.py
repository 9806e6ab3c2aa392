"""What several tests of importers share."""

import pytest


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"
