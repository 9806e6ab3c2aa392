"""Paths of the repository and of the scripts that install schedulers and container runtimes."""

import contextlib
import fcntl
import os
import shlex
import sys
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


def path_without_schedulers(folder, path=None):
    """A PATH with all programs of this machine's but those of schedulers, as links in a folder."""
    folder.mkdir()
    schedulers = ("sinfo", "sbatch", "squeue", "qsub", "qstat", "qhost", "bsub", "bjobs")
    for place in (path or os.environ["PATH"]).split(os.pathsep):
        for program in os.scandir(place) if os.path.isdir(place) else ():
            link = folder / program.name
            if program.name not in schedulers and not os.path.lexists(link):
                link.symlink_to(program.path)
    return str(folder)


def without_a_space(monkeypatch, folder):
    """Let our Python have a path without a space, as jobs of Snakemake need it, wherever we are."""
    python = folder / "python-of-jobs"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
