"""A campaign on a real Slurm under the oldest Snakemake that the Snakefile allows."""

import json
import shutil

import pytest
import yaml

from support.campaigns.campaign import Campaign
from support.campaigns.oldest_snakemake import Older, install
from support.machines.slurm_cluster import FACTS

PROFILE = ("--profile", "profiles/slurm")


@pytest.fixture(scope="module")
def campaign(slurm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("oldest_slurm")
    Older.python = install(folder / "venv")
    fresh = Campaign.fresh(folder / "dlbench")
    campaign = Older(fresh.folder, slurm.variables)
    (campaign.folder / "site.yaml").write_text(yaml.safe_dump({"site": FACTS}))
    block = {"name": "two", "model": ["lenet5", "cnn12"], "dataset": "synthetic", "steps": 3}
    campaign.configure(matrix=[block | {"batch_per_device": 4, "warmup_steps": 1}], figures=[])
    campaign.succeed(*PROFILE)
    return campaign


def test_runs_are_jobs_and_what_is_deleted_is_one_again(campaign):
    records = [
        json.loads(path.read_text())
        for path in sorted(campaign.folder.glob("results/runs/*/run.json"))
    ]
    assert {record["status"] for record in records} <= {"ok", "unstable"} and len(records) == 2
    assert len({record["provenance"]["job"]["id"] for record in records}) == 2
    assert campaign.scheduled(*PROFILE) == {}
    folder = campaign.record("lenet5-synthetic").parent
    shutil.rmtree(folder)
    campaign.succeed(*PROFILE)
    again = json.loads((folder / "run.json").read_text())["provenance"]["job"]["id"]
    assert again not in {record["provenance"]["job"]["id"] for record in records}
    assert campaign.scheduled(*PROFILE) == {}
