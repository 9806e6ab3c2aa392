"""What several tests of importers share."""

import pytest


@pytest.fixture
def log(tmp_path):
    """Where a test writes the log that it reads."""
    return tmp_path / "log"
