"""The workflow under the oldest Snakemake that it allows: a study, and what trains again."""

import json
import shutil

import pytest

from support.campaigns.campaign import Campaign
from support.campaigns.oldest_snakemake import OLDEST, Older, OlderScratch, install


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """A finished study under it; the tests follow one another."""
    folder = tmp_path_factory.mktemp("oldest")
    Older.python = install(folder / "venv")
    fresh = Campaign.fresh(folder / "dlbench")
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


def test_another_workflow_uses_ours_as_a_module(campaign):
    scratch = OlderScratch.beside(campaign, campaign.folder.parent / "my work")
    scratch.succeed("--workflow-profile", "../dlbench/profiles/default")
    record = json.loads(scratch.record("lenet5-synthetic-b4").read_text())
    assert record["status"] in ("ok", "unstable"), record["message"]
    assert (scratch.folder / "analysis/fastest.csv").is_file()
    again = scratch.snakemake("--workflow-profile", "../dlbench/profiles/default")
    assert "Nothing to be done" in again.stdout
