"""What dlbench init writes is planned by the real Snakefile, started as init says."""

import shlex

import pytest

from support.campaigns.campaign import Campaign
from support.machines.paths import path_without_schedulers

SINFO = "cpu*|up|1:00:00|3|8|8000|(null)|idle\ngpu|up|1:00:00|2|16|64000|gpu:4|mixed"


def planned(campaign, *arguments):
    """(arguments that init tells, plan of Snakemake with these)."""
    told = shlex.split(campaign.dlbench("init", *arguments).rpartition(" snakemake ")[2])
    # The partition with the GPUs is proposed, and for the site to take.
    profile = campaign.folder / "profiles/slurm/profile.yaml"
    text = profile.read_text().replace("# - slurm_partition=gpu", "- slurm_partition=gpu")
    profile.write_text(text)
    return told, campaign.succeed("-n", "--quiet", "rules", *told)


@pytest.mark.ci
def test_a_study_for_this_machine_is_planned(fresh, tmp_path):
    """As on one without a scheduler."""
    here = Campaign(fresh.folder, {"PATH": path_without_schedulers(tmp_path / "programs")})
    assert "18 runs to train" in planned(here, "--framework", "tensorflow")[1]


def test_a_study_and_a_site_for_a_cluster_are_planned(fresh, tmp_path):
    """On a machine with programs in the place of Slurm's."""
    for name in ("sbatch", "squeue", "scancel", "sacct", "sinfo"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{SINFO if name == 'sinfo' else ''}\nEND\n")
        path.chmod(0o755)
    others = path_without_schedulers(tmp_path / "programs")
    cluster = Campaign(fresh.folder, {"PATH": f"{tmp_path / 'bin'}:{others}"})
    arguments, plan = planned(cluster, "mine", "--framework", "pytorch", "--nodes", "2")
    assert arguments[:2] == ["--profile", "profiles/slurm"]
    assert "24 runs to train" in plan
