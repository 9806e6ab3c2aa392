"""What several files of tests share."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from dlbench.common import own_code
from dlbench.data import fetch_dataset
from dlbench.starting import processes, supervisor
from dlbench.study import config, trainer_environments
from support.campaigns.temporary_folder import temporary_folder as temporary_folder
from support.machines.downloads import Server
from support.machines.paths import REPOSITORY
from support.runs.made_runs import SETTINGS

# On a busy machine an example takes as long as it takes.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
TOOLS = (
    "sh", "env", "sed", "mkdir", "touch", "cat", "chmod", "rm", "cp", "ln", "tar", "head"
)  # fmt: skip


@pytest.fixture(autouse=True)
def at_home(monkeypatch):
    """The working directory stands for the workflow's folder; the tests of `own_code` leave it."""
    monkeypatch.setattr(own_code, "in_project_folder", lambda: True)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A workflow's folder, on a machine that has nothing but what shells need."""
    for name in ("envs", "workflow_scripts"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    (tmp_path / "bin").mkdir()
    for name in TOOLS:
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pythons(place, monkeypatch):
    """On the machine of `place`, a uv that finds a Python for every environment."""
    known = [one for one in vars(trainer_environments).values() if hasattr(one, "cache_clear")]
    monkeypatch.delenv("UV", raising=False)
    (place / "bin/uv").write_text("#!/bin/sh\n")
    (place / "bin/uv").chmod(0o755)
    for cached in known:
        cached.cache_clear()
    yield
    for cached in known:
        cached.cache_clear()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working directory, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def project(here):
    """The working directory, which has the environments of the project."""
    (here / "envs").symlink_to(REPOSITORY / "envs")
    return here


@pytest.fixture
def study(project):
    """Two batch sizes, two repeats each, of which nothing is trained."""
    return config.study(SETTINGS)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Makes a program on the path that prints a text, or does something else."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def make(name, text="", script=None):
        path = tmp_path / name
        path.write_text(script or f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        path.chmod(0o755)

    return make


@pytest.fixture
def server():
    with Server() as started:
        yield started
        started.shutdown()


@pytest.fixture
def short_waits(monkeypatch):
    """Downloads that fail are tried again at once."""
    monkeypatch.setattr(fetch_dataset, "FIRST_WAIT_S", 0.01)


@pytest.fixture
def impatient(monkeypatch):
    """The supervisor looks often, and kills soon what does not end when asked."""
    monkeypatch.setattr(supervisor, "POLL_S", 0.02)
    monkeypatch.setattr(processes, "GRACE_S", 0.2)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A function that puts a program on the path, which has nothing else but what shells need."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "env", "sed", "mkdir", "touch", "cat", "xargs", "tar"):
        found = next(p for p in ("/bin", "/usr/bin") if Path(p, name).exists())
        (folder / name).symlink_to(Path(found, name))
    monkeypatch.setenv("PATH", str(folder))

    def add(name, script):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return add


@pytest.fixture
def user(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
