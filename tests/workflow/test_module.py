"""Another workflow uses ours as a module, from a folder of its own: docs/module.md."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from dlbench.common import tools
from support.campaigns.campaign import TRAINED, Campaign
from support.campaigns.scratch import Scratch

BENCH = ("--resources", "bench=1")
ONE_JOB_AT_A_TIME = (*BENCH, "--cores", "1", "--workflow-profile", "none")
HOOKS = """
shell.prefix("said=ours; ")


onstart:
    print("their start")


onsuccess:
    print("their success")


onerror:
    print("their error")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A clone, which no test may leave anything in."""
    project = Campaign.fresh(tmp_path_factory.mktemp("there") / "dlbench")
    yield project
    assert not (project.folder / "results").exists()
    assert not (project.folder / ".snakemake").exists()


@pytest.fixture(scope="module")
def finished(project):
    """The page's workflow, done; copy it before changing it."""
    scratch = Scratch.beside(project, project.folder.parent / "my work")
    with (scratch.folder / "Snakefile").open("a") as file:
        file.write(HOOKS)
    scratch.edit('"echo $(uname -n)', '"echo $said $(uname -n)')
    scratch.output = scratch.succeed(*ONE_JOB_AT_A_TIME)
    return scratch


@pytest.fixture
def scratch(finished, request):
    name = re.sub(r"\W+", " ", request.node.name)[:40]
    folder = finished.folder.parent / f"of {name}"
    shutil.copytree(finished.folder, folder, symlinks=True)
    return Scratch(folder, finished.variables)


@pytest.mark.ci
def test_rules_before_and_after_a_run_are_done_once_and_their_prefix_and_hooks_are_theirs(finished):
    (record,) = finished.records().values()
    assert record["status"] in TRAINED, record["message"]
    rate, model = (finished.folder / "analysis/fastest.txt").read_text().split()
    assert float(rate) > 0 and model == "lenet5"
    # Our prefix would have ended the pipe's rules, and our hooks have taken the place of theirs.
    machine = (finished.folder / "analysis/machine.txt").read_text()
    assert machine.startswith("ours ") and machine.endswith("in the cellar\n")
    assert finished.output.index("their start") < finished.output.index("their success")
    assert "their error" not in finished.output
    assert finished.scheduled(*ONE_JOB_AT_A_TIME) == {}


@pytest.mark.ci
def test_one_more_model_trains_its_run_only(scratch):
    scratch.block(model=["lenet5", "cnn12"])
    planned = scratch.scheduled(*ONE_JOB_AT_A_TIME)
    (new,) = planned["dlbench_train"]
    assert new.startswith("cnn12-synthetic-b4")
    assert planned.keys() == {
        "dlbench_train", "dlbench_list_records", "dlbench_collect_runs", "fastest", "everything",
    }  # fmt: skip


def test_rules_of_theirs_and_of_ours_may_be_changed(scratch):
    scratch.edit("in {params.room}", "within {params.room}")
    scratch.edit("""        machine="analysis/machine.txt",\n""", "")
    assert scratch.scheduled(*ONE_JOB_AT_A_TIME).keys() == {"fastest", "everything"}
    assert scratch.scheduled(*ONE_JOB_AT_A_TIME, "analysis/machine.txt").keys() == {"machine"}

    scratch.block(batch_per_device=8)
    scratch.edit(
        "rule everything:",
        "use rule train from dlbench as dlbench_train with:\n    threads: 2\n\n\nrule everything:",
    )
    (run_id,) = scratch.scheduled(*BENCH, "--cores", "2")["dlbench_train"]
    assert run_id.startswith("lenet5-synthetic-b8")
    assert scratch.output.count("1 run to train: not trained yet") == 1
    assert re.search(r"rule dlbench_train:(\n    .*)*\n    threads: 2", scratch.output)


def test_what_a_module_cannot_be_given_and_a_start_without_a_limit_are_refused(scratch, project):
    # Programs take the config of the workflow, which has both.
    shutil.copy(scratch.folder / "config/config.yaml", scratch.folder / "config.yaml")
    shown = subprocess.run(
        [sys.executable, project.folder / "workflow_scripts/dlbench", "status", "--json"],
        cwd=scratch.folder, env=scratch.environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(shown.stdout)["study"] == "mine"

    scratch.block(batch_per_device=8)
    finished = scratch.snakemake("--cores", "2")
    assert finished.returncode != 0 and "--resources bench=1" in finished.stdout
    scratch.study(figurs=[])
    message = scratch.snakemake(*BENCH, "-n").stdout
    assert "The config cannot be used" in message and "did you mean 'figures'?" in message
    scratch.edit('config["dlbench"]', 'config["dlbench"]\n    prefix:\n        "bench"')
    finished = scratch.snakemake(*BENCH, "-n")
    assert finished.returncode != 0
    assert "pathvars, prefix and replace_prefix do not move: leave them out" in finished.stdout
    scratch.edit('prefix:\n        "bench"', 'pathvars:\n        results="elsewhere"')
    finished = scratch.snakemake(*BENCH, "-n")
    assert finished.returncode != 0 and "(ln -s /scratch/me/mine results)" in finished.stdout


def test_what_snakedeploy_has_deployed_trains_and_trains_nothing_twice(project):
    """As from a repository with a tag, which Snakemake reads from there."""
    place = project.folder.parent
    repository = place / "github.com/someone/dlbench"
    shutil.copytree(project.folder, repository, symlinks=True)
    git = ["git", "-c", "user.name=someone", "-c", "user.email=someone@localhost"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "All of it"], ["tag", "v1"]):
        subprocess.run([*git, *arguments], cwd=repository, check=True)
    cache = subprocess.check_output([tools.find_uv(), "cache", "dir"], text=True).strip()
    variables = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{place}/github.com/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/",
        # Where Snakemake keeps what it has fetched; what uv has stays where it is.
        "XDG_CACHE_HOME": str(place / "cache"),
        "UV_CACHE_DIR": cache,
    }
    deployed = Campaign(place / "deployed work", project.variables | variables)
    subprocess.run(
        [tools.find_uv(), "tool", "run", "snakedeploy==0.17.1", "deploy-workflow",
         "https://github.com/someone/dlbench", deployed.folder, "--tag", "v1"],
        env=deployed.environment(), check=True,
    )  # fmt: skip
    text = (deployed.folder / "workflow/Snakefile").read_text()
    assert 'github("someone/dlbench", path="Snakefile", tag="v1")' in text
    block = {
        "name": "small", "model": "lenet5", "dataset": "synthetic", "batch_per_device": 4,
        "warmup_steps": 1, "steps": 3,
    }  # fmt: skip
    study = {"study": "deployed", "matrix": [block], "figures": []}
    (deployed.folder / "config/config.yaml").write_text(yaml.safe_dump(study))
    assert len(deployed.scheduled()["train"]) == 1
    (clone,) = (deployed.folder / ".snakemake/dlbench").iterdir()
    # What the first start would install takes minutes.
    (clone / "envs/train/.venv").symlink_to((project.folder / "envs/train/.venv").resolve())
    deployed.succeed()
    (record,) = deployed.records().values()
    assert record["status"] in TRAINED, record["message"]
    assert record["provenance"]["git_commit"] == clone.name
    assert deployed.scheduled() == {}
