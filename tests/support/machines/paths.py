"""Paths of the repository and of the scripts that install schedulers and container runtimes."""

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
# Not part of the project: tests that need them are skipped where they are missing.
EQUIPMENT = Path(os.environ.get("DLBENCH_TEST_EQUIPMENT", REPOSITORY.parent / "shared" / "ci"))


@contextlib.contextmanager
def alone(what):
    """A lock, since suites run in parallel and a machine has one apt and one Slurm."""
    with open(Path(tempfile.gettempdir(), f"dlbench-tests-{what}.lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
