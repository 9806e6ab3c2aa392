"""A workflow that uses ours as a module, on Slurm, under the oldest Snakemake: docs/module.md."""

import json

import yaml

from support.campaigns.campaign import TRAINED, Campaign
from support.campaigns.oldest_snakemake import OLDEST, install
from support.campaigns.scratch import Scratch
from support.machines.slurm_cluster import FACTS

PROFILES = ("--profile", "slurm", "--workflow-profile", "../dlbench/profiles/default")


def test_a_run_and_the_rules_around_it_are_jobs_once_and_all_else_is_done_here(slurm, tmp_path):
    project = Campaign.fresh(tmp_path / "dlbench")
    (tmp_path / ".config/snakemake").mkdir(parents=True)
    (tmp_path / ".config/snakemake/slurm").symlink_to(project.folder / "profiles/slurm")
    project.variables = {**slurm.variables, "HOME": str(tmp_path)}
    scratch = Scratch.beside(project, tmp_path / "my work")
    scratch.python = install(tmp_path / "venv")
    assert scratch.succeed("--version").startswith(f"{OLDEST}.")
    (scratch.folder / "site.yaml").write_text(yaml.safe_dump({"site": FACTS}))
    scratch.edit('"echo $(uname -n) in', '"echo $SLURM_JOB_ID in')
    before = slurm.jobs()
    scratch.succeed(*PROFILES)
    submitted = slurm.jobs() - before
    record = json.loads(scratch.record("lenet5-synthetic-b4").read_text())
    assert record["status"] in TRAINED, record["message"]
    ours = record["provenance"]["job"]["id"]
    theirs = (scratch.folder / "analysis/machine.txt").read_text().split()[0]
    assert ours != theirs and {ours, theirs} < submitted
    assert len(submitted) == 3  # the rule after it, too
    assert record["provenance"]["site"]["name"] == "three nodes"
    assert (scratch.folder / "analysis/fastest.txt").read_text().count("lenet5") == 1

    assert "Nothing to be done" in scratch.succeed(*PROFILES)
    assert slurm.jobs() - before == submitted
    scratch.block(model=["lenet5", "cnn12"])
    (run_id,) = scratch.scheduled(*PROFILES)["dlbench_train"]
    assert run_id.startswith("cnn12-")
