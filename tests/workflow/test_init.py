"""What dlbench init writes is planned by the real Snakefile, started as init says."""

import os
import shlex
import subprocess
import sys

import pytest

from support.campaigns.campaign import Campaign

SINFO = "cpu*|up|1:00:00|3|8|8000|(null)|idle\ngpu|up|1:00:00|2|16|64000|gpu:4|mixed"


@pytest.fixture
def cluster(fresh, tmp_path):
    """A fresh copy on a machine with programs in the place of Slurm's."""
    for name in ("sbatch", "squeue", "scancel", "sacct", "sinfo"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{SINFO if name == 'sinfo' else ''}\nEND\n")
        path.chmod(0o755)
    return Campaign(fresh.folder, {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})


def init(campaign, *arguments):
    """Start dlbench init. Returns the arguments of Snakemake in the last line that it prints."""
    finished = subprocess.run(
        [sys.executable, "workflow_scripts/dlbench", "init", *arguments],
        cwd=campaign.folder,
        env=campaign.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return shlex.split(finished.stdout.splitlines()[-1].partition(" snakemake ")[2])


def planned(campaign, arguments):
    finished = campaign.snakemake("-n", "--quiet", "rules", *arguments)
    assert finished.returncode == 0, finished.stdout
    return finished.stdout


@pytest.mark.ci
def test_a_study_for_this_machine_is_planned(fresh):
    assert "18 runs to train" in planned(fresh, init(fresh, "--framework", "tensorflow"))


def test_a_study_and_a_site_for_a_cluster_are_planned(cluster):
    arguments = init(cluster, "mine", "--framework", "pytorch", "--nodes", "2")
    assert arguments[:2] == ["--profile", "profiles/slurm"]
    profile = cluster.folder / "profiles/slurm/config.yaml"
    profile.write_text(
        profile.read_text().replace("# - slurm_partition=gpu", "- slurm_partition=gpu")
    )
    assert "24 runs to train" in planned(cluster, arguments)
