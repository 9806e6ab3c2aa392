"""A workflow that uses ours as a module, by `snakemake --profile slurm`: docs/module.md."""

import json

import pytest
import yaml

from support.campaigns.campaign import Campaign
from support.campaigns.scratch import Scratch
from support.machines.slurm_cluster import FACTS

PROFILES = ("--profile", "slurm", "--workflow-profile", "../dlbench/profiles/default")


@pytest.fixture(scope="module")
def finished(slurm, tmp_path_factory):
    """That workflow, done; the rule before says in which job it was."""
    folder = tmp_path_factory.mktemp("slurm_module")
    project = Campaign.fresh(folder / "dlbench")
    (folder / ".config/snakemake").mkdir(parents=True)
    (folder / ".config/snakemake/slurm").symlink_to(project.folder / "profiles/slurm")
    project.variables = {**slurm.variables, "HOME": str(folder)}
    scratch = Scratch.beside(project, folder / "my work")
    (scratch.folder / "site.yaml").write_text(yaml.safe_dump({"site": FACTS}))
    scratch.edit('"echo $(uname -n) in', '"echo $SLURM_JOB_ID in')
    before = jobs(slurm)
    scratch.output = scratch.succeed(*PROFILES)
    scratch.submitted = jobs(slurm) - before
    return scratch


def jobs(slurm):
    """The ids of all jobs that there ever were."""
    return set(slurm.run("sacct", "-X", "--noheader", "--format=JobID").split())


def test_a_run_and_the_rules_around_it_are_jobs_and_all_else_is_done_here(finished):
    record = json.loads(finished.record("lenet5-synthetic-b4").read_text())
    assert record["status"] in ("ok", "unstable"), record["message"]
    machine = (finished.folder / "analysis/machine.txt").read_text()
    ours, theirs = record["provenance"]["job"]["id"], machine.split()[0]
    assert ours != theirs and {ours, theirs} < finished.submitted
    assert len(finished.submitted) == 3  # the rule after it, too
    assert record["provenance"]["site"]["name"] == "three nodes"
    assert (finished.folder / "analysis/fastest.csv").read_text().count("lenet5") == 1


def test_a_second_start_submits_nothing_and_one_more_model_a_run(finished, slurm):
    before = jobs(slurm)
    assert "Nothing to be done" in finished.succeed(*PROFILES)
    assert jobs(slurm) == before
    finished.block(model=["lenet5", "cnn12"])
    (run_id,) = finished.scheduled(*PROFILES)["dlbench_train"]
    assert run_id.startswith("cnn12-")
