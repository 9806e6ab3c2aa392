"""A temporary folder for all processes of a suite, which is deleted with its content."""

import tempfile

import pytest


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory):
    """Killed processes leave files behind; TensorFlow for one leaves generated functions."""
    tmp_path_factory.getbasetemp()  # pytest's own folder stays where it is
    with (
        tempfile.TemporaryDirectory(prefix="dlbench-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield
