"""The workflow under the oldest Snakemake that it allows: a study, and what trains again."""

import shutil

from support.campaigns.campaign import TRAINED, Campaign
from support.campaigns.oldest_snakemake import OLDEST, install
from support.campaigns.scratch import Scratch


def test_a_study_and_a_workflow_that_uses_ours_are_done_once_and_changed_runs_again(tmp_path):
    python = install(tmp_path / "venv")
    fresh = Campaign.fresh(tmp_path / "dlbench")
    scratch = Scratch.beside(fresh, tmp_path / "my work")
    fresh.python = scratch.python = python
    fresh.configure(figures=["scaling"])
    fresh.succeed()
    assert fresh.scheduled() == {}
    assert fresh.succeed("--version").startswith(f"{OLDEST}.")

    changed, _, deleted = fresh.ids()  # cnn12, lenet5 on digits and on synthetic data
    shutil.rmtree(fresh.folder / "results/runs" / deleted)
    assert fresh.scheduled()["train"] == [deleted]
    models = fresh.folder / "workflow_scripts/dlbench/trainer/keras/models"
    with open(models / "classic_cnn.py", "a") as file:
        file.write("\nCHANGED = 1\n")
    assert fresh.scheduled()["train"] == [changed, deleted]
    fresh.succeed()
    assert fresh.scheduled() == {}
    finished = fresh.snakemake("-n", "--workflow-profile", "none", "--cores", "1")
    assert finished.returncode != 0 and "--resources bench=1" in finished.stdout

    profile = ("--workflow-profile", "../dlbench/profiles/default")
    scratch.succeed(*profile)
    (record,) = scratch.records().values()
    assert record["status"] in TRAINED, record["message"]
    assert (scratch.folder / "analysis/fastest.txt").is_file()
    assert "Nothing to be done" in scratch.succeed(*profile)
