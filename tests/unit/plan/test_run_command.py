"""run_command: what a start of Snakemake computes of the commands of runs, and when."""

import shlex
import subprocess
from pathlib import Path

import pytest

from dlbench.common import own_code, plugins
from dlbench.common.files import sha256
from dlbench.plan import planning, run_command
from dlbench.study import other_trainers
from dlbench.study.runs import Run
from support.studies.planned_runs import STUDY


def test_the_words_of_a_run_are_made_when_they_are_formatted_and_once_for_several_times(
    plan, monkeypatch
):
    run_id = next(iter(plan.runs))
    assert plan.facts["study"] == STUDY["study"]
    made = []
    words_of = run_command.start_run_arguments
    monkeypatch.setattr(
        run_command, "start_run_arguments", lambda *given: made.append(given) or words_of(*given)
    )
    arguments = run_command.StartRunArguments(plan, run_id)
    assert made == []
    formatted = [f"exec start_run.py {arguments}" for _ in range(3)]
    assert made == [(plan, run_id)]
    assert set(formatted) == {f"exec start_run.py {shlex.join(words_of(plan, run_id))}"}
    # Snakemake makes parameters anew once inputs are there: digests may be known only then.
    str(run_command.StartRunArguments(plan, run_id))
    assert len(made) == 2


def test_runs_with_a_power_limit_are_told_how_the_site_sets_it(project):
    sets = "sudo -n nvidia-smi"
    site = STUDY["site"] | {"device": "gpu", "power_limit_command": sets}
    limited = STUDY["matrix"][0] | {"name": "limited", "power_limit_w": 250}
    settings = STUDY | {"site": site, "matrix": [STUDY["matrix"][0], limited]}
    plan = planning.make_plan(settings)
    for run in plan.runs.values():
        words = run_command.start_run_arguments(plan, run.id)
        assert (f"--power-limit-command={sets}" in words) == (run.power_limit_w == 250)
        assert ("--power-limit-w 250" in shlex.join(run.command(words))) == bool(run.power_limit_w)


def test_a_site_says_how_processes_are_bound_and_whether_they_share_gpus(project):
    usual, other = (
        planning.make_plan(STUDY | {"site": STUDY["site"] | settings})
        for settings in ({}, {"binding": "cores", "share_gpus": True})
    )
    assert usual.runs.keys() == other.runs.keys()  # it changes no run
    for run_id in usual.runs:
        words = run_command.start_run_arguments(usual, run_id)
        assert not {"--site-binding", "--share-gpus"} & set(words)
        words = run_command.start_run_arguments(other, run_id)
        assert words[words.index("--site-binding") + 1] == "cores" and "--share-gpus" in words


def test_a_run_is_started_with_the_time_limit_and_the_hang_limit_of_its_study(project):
    plan = planning.make_plan(STUDY | {"time_limit_s": 900, "hang_limit_s": 70})
    words = run_command.start_run_arguments(plan, next(iter(plan.runs)))
    assert "--time-limit-s=900" in words and "--hang-limit-s=70" in words


MODEL = 'TASK = "classification"\nINPUT_SHAPE = (28, 28, 1)\n'


@pytest.fixture
def own(here):
    """A folder of models in a repository of its own, with one commit."""
    Path("models").mkdir()
    Path("models/mine.py").write_text(MODEL)
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        git(*arguments)
    plugins.add_user_folder("models", "models")
    run_command._commit.cache_clear()
    yield Path("models")
    plugins.add_user_folder("models")
    run_command._commit.cache_clear()


def git(*arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    answer = subprocess.run(["git", *who, *arguments], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def of(model="mine", **fields):
    run_command._commit.cache_clear()
    return run_command.user_files(
        Run(model=model, dataset="synthetic", batch_per_device=8, **fields)
    )


def test_a_run_of_our_own_files_names_none():
    assert of("lenet5") == {}


def test_a_model_has_its_digest_and_commit(own):
    assert of() == {
        "model": {
            "file": "models/mine.py",
            "sha256": sha256(own / "mine.py"),
            "git_commit": git("rev-parse", "HEAD"),
            "git_dirty": False,
        }
    }


def test_a_model_that_is_changed_not_tracked_or_ignored_is_dirty(own):
    (own / "mine.py").write_text(f"{MODEL}# changed\n")
    assert of()["model"]["git_dirty"] is True
    git("checkout", "-q", "models/mine.py")
    (own / "other.py").write_text(MODEL)
    plugins.add_user_folder("models", "models")
    for ignored in ("", "other.py\n"):
        Path(".git/info/exclude").write_text(ignored)
        assert of("other")["model"]["git_dirty"] is True
    assert of("mine")["model"]["git_dirty"] is False


def test_a_model_outside_of_git_has_a_digest_only(own, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    found = of()["model"]
    assert (found["git_commit"], found["git_dirty"]) == (None, None)
    assert found["sha256"] == sha256(own / "mine.py")


def test_another_trainers_files_have_commits_each(own):
    Path("outside.py").write_text("")
    theirs = {"command": ["x"], "log": "auto", "files": ["models", "outside.py"]}
    other_trainers.register({"theirs": theirs})
    try:
        found = of(trainer="theirs", steps=3)["trainer"]
    finally:
        other_trainers.register({})
    assert len(found["sha256"]) == 64
    dirty = {name: file["git_dirty"] for name, file in found["files"].items()}
    assert dirty == {"models": False, "outside.py": True}


def test_the_workflows_own_commit_leaves_out_what_git_does_not_track():
    root = own_code.PROGRAMS.parent
    command = ["git", "-C", root, "status", "--porcelain", "--untracked-files=no"]
    command += ["--", ":(exclude)profiles"]
    tracked = subprocess.run(command, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("this copy of the workflow is no git repository")
    assert own_code.git_state()["git_dirty"] is bool(tracked.stdout.strip())
