"""The workflow under the oldest Snakemake that it allows: a study, and what trains again."""

import re
import shutil
import subprocess

import pytest
import tomllib

from dlbench.common import tools
from support.campaigns.campaign import Campaign
from support.machines.paths import REPOSITORY

OLDEST = re.search(r'min_version\("([\d.]+)"\)', (REPOSITORY / "Snakefile").read_text())[1]


class Older(Campaign):
    """A campaign under another Snakemake than that of the tests."""

    python = ""

    def command(self, *arguments):
        return [self.python, "-m", "snakemake", *arguments]

    def snakemake(self, *arguments, timeout=600):
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(),
            timeout=timeout,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """A finished study under it; the tests follow one another."""
    folder = tmp_path_factory.mktemp("oldest")
    uv = tools.find_uv()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    packages = [line for line in project["dependencies"] if not line.startswith("snakemake>")]
    subprocess.run([uv, "venv", "-q", folder / "venv"], check=True)
    python = folder / "venv/bin/python"
    install = [uv, "pip", "install", "-q", "--python", python, f"snakemake=={OLDEST}.*", *packages]
    subprocess.run(install, check=True)
    Older.python = str(python)
    fresh = Campaign.fresh(folder / "project")
    campaign = Older(fresh.folder, fresh.variables)
    campaign.configure(figures=["scaling"])
    campaign.succeed()
    return campaign


def test_a_finished_study_has_nothing_to_do(campaign):
    assert campaign.scheduled() == {}
    assert campaign.succeed("--version").startswith(f"{OLDEST}.")


def test_a_deleted_run_is_trained_and_no_other(campaign):
    folder = campaign.record("lenet5-synthetic").parent
    shutil.rmtree(folder)
    assert campaign.scheduled()["train"] == [folder.name]
    campaign.succeed()
    assert campaign.scheduled() == {}


def test_changed_code_trains_the_runs_of_a_model(campaign):
    path = campaign.folder / "workflow_scripts/dlbench/trainer/keras/models/convolutional/cnn12.py"
    path.write_text(path.read_text() + "\nCHANGED = 1\n")
    assert {run.split("-")[0] for run in campaign.scheduled()["train"]} == {"cnn12"}
    campaign.succeed()
    assert campaign.scheduled() == {}


def test_a_start_without_a_limit_for_timed_runs_is_refused(campaign):
    finished = campaign.snakemake("-n", "--workflow-profile", "none", "--cores", "1")
    assert finished.returncode != 0 and "--resources bench=1" in finished.stdout
