"""dlbench check-site on a real Slurm, its job on two nodes included."""

import subprocess
import sys

import pytest
import yaml

from support.campaigns.campaign import Campaign
from support.machines.slurm_cluster import FACTS, wait_for

BLOCK = {
    "name": "across nodes", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 4,
    "steps": 3, "strategy": "horovod", "launcher": ["mpirun", "srun"], "nodes": 2,
}  # fmt: skip


@pytest.fixture
def campaign(slurm, tmp_path):
    campaign = Campaign.fresh(tmp_path / "project")
    campaign.variables = {**slurm.variables, "HOME": str(tmp_path)}
    campaign.configure(matrix=[BLOCK], figures=[])
    change_site(campaign)
    return campaign


def check(campaign, *options):
    """(exit code, lines) of the program."""
    finished = subprocess.run(
        [sys.executable, "workflow_scripts/dlbench", "check-site", "--profile", "slurm", *options],
        cwd=campaign.folder,
        env=campaign.environment(),
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    return finished.returncode, finished.stdout.splitlines()


def change_site(campaign, **changes):
    (campaign.folder / "site.yaml").write_text(yaml.safe_dump({"site": FACTS | changes}))


def fixes(lines):
    return [line.removeprefix("fix").strip() for line in lines if line.startswith("fix")]


@pytest.mark.ci
def test_a_slurm_that_is_in_order_has_nothing_to_fix_on_two_nodes(campaign, slurm):
    code, lines = check(campaign)
    assert (code, fixes(lines)) == (0, []), lines
    message = "\n".join(lines)
    for text in (
        "slurm answers, and has cpu, gpu, low",
        "the default queue cpu has 3 nodes of 8 cores, 8000 MiB, 4 GPUs; 60 min at most",
        "a job ran on n",
        "seen there and back within",
        "with snakemake",
        "with tensorflow",
        "mpirun is Open MPI",
        "srun speaks pmix to MPI",
    ):
        assert text in message, message
    wait_for(lambda: not slurm.queue(), 60)  # a job that has ended is listed until its node is free
