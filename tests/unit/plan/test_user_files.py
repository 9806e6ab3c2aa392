"""user_files: digest and commit of the files of the user's that a run executes."""

import subprocess
from pathlib import Path

import pytest

from dlbench.common import own_code, plugins
from dlbench.common.files import sha256
from dlbench.plan import user_files
from dlbench.study import other_trainers
from dlbench.study.runs import Run

MODEL = 'TASK = "classification"\nINPUT_SHAPE = (28, 28, 1)\n'


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder of models in a repository of its own, with one commit."""
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("models/mine.py").write_text(MODEL)
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        git(*arguments)
    plugins.add_user_folder("models", "models")
    user_files._commit.cache_clear()
    yield Path("models")
    plugins.add_user_folder("models")
    user_files._commit.cache_clear()


def git(*arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    answer = subprocess.run(["git", *who, *arguments], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def of(model="mine", **fields):
    user_files._commit.cache_clear()
    return user_files.used_by(Run(model=model, dataset="synthetic", batch_per_device=8, **fields))


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
