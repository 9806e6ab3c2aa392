"""On a machine whose only Python is 3.13, which is too new for envs/train."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.common import tools
from support.campaigns.campaign import environment
from support.machines import pythons

CHOSEN = "results/chosen_environments.json"


@pytest.fixture
def only(tmp_path):
    """The variables of such a machine, and the workflow's Python there."""
    version = "3.13"
    if not (path := pythons.find(version)):
        pytest.skip(f"this machine has no Python {version}")
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in Path("/usr/bin").iterdir():
        if not program.name.startswith(("python", "uv")):
            (folder / program.name).symlink_to(program)
    (folder / "python3").symlink_to(path)
    variables = {
        **environment(),
        "PATH": str(folder),
        "UV_PYTHON_INSTALL_DIR": str(tmp_path / "none"),
        "UV_PYTHON_DOWNLOADS": "never",
    }
    return variables, str(pythons.workflow_python(version, tools.find_uv()))


def test_what_was_chosen_there_is_what_other_pythons_and_programs_find(fresh, only):
    variables, python = only
    (fresh.folder / "envs/train/.venv").unlink(missing_ok=True)  # it has a Python
    (fresh.folder / "envs/train-latest/.venv").unlink(missing_ok=True)
    strategies = {"strategy": ["single", "horovod"], "dataset": "digits", "exclude": []}
    fresh.matrix(model="lenet5", **strategies)

    def run(arguments, python=python, variables=variables):
        """A program of ours, or Snakemake."""
        return subprocess.run(
            [python, *arguments],
            cwd=fresh.folder,
            env=variables,
            text=True,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ).stdout

    dry = ["-m", "snakemake", "-n", "--quiet", "rules"]
    chosen = "runs that name no environment are of envs/train-latest, since no Python fits"
    message = run(dry)
    assert f"{chosen} envs/train ({CHOSEN})" in message
    assert "1 run to skip: envs/train-latest has no horovod" in message
    assert not (fresh.folder / CHOSEN).exists()

    run(["-m", "snakemake", "--cores", "1", "data"])  # a start
    assert json.loads((fresh.folder / CHOSEN).read_text()) == {"train": "train-latest"}

    # Other Pythons appear: that which runs this test fits envs/train.
    assert chosen in run(dry, sys.executable, environment())
    status = ["workflow_scripts/dlbench", "status", "--runs"]
    there = run(status)
    assert "envs/train-latest has no horovod" in there
    assert run(status, sys.executable, environment()) == there
