"""git_branch: a website as a commit, without a work tree."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.publication.git_branch import NO_JEKYLL, Repository

LIST = "files.json"
WHO = {f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    for name, value in WHO.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


@pytest.fixture
def repository(tmp_path):
    """A repository with a commit, a change that is staged and one that is not."""
    folder = tmp_path / "repository"
    git("init", "--quiet", "--initial-branch", "main", str(folder), folder=tmp_path)
    (folder / "thesis.tex").write_text("one")
    git("add", ".", folder=folder)
    git("commit", "--quiet", "-m", "thesis", folder=folder)
    (folder / "thesis.tex").write_text("two")
    git("add", ".", folder=folder)
    (folder / "thesis.tex").write_text("three")
    return folder


def git(*arguments, folder):
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def site(folder, **pages):
    """A website: {name of a page: its text}."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, text in pages.items():
        (folder / f"{name}.html").write_bytes(text.encode())
    (folder / LIST).write_text(json.dumps({"files": [f"{name}.html" for name in pages]}))
    return folder


def commit(repository, files, branch="pages"):
    return Repository(repository).commit(branch, files, LIST, "Benchmark results")


def names(repository, branch="pages"):
    return git("ls-tree", "--name-only", branch, folder=repository).split()


def test_the_pages_are_an_orphan_commit_and_the_work_tree_and_index_stay(repository, tmp_path):
    before = git("status", "--porcelain=v2", "--branch", folder=repository)
    made = commit(repository, site(tmp_path / "site", index="a\r\nb", leaders="c"))
    assert git("rev-list", "pages", folder=repository).split() == [made]
    assert names(repository) == [NO_JEKYLL, LIST, "index.html", "leaders.html"]
    shown = subprocess.run(
        ["git", "-C", repository, "show", "pages:index.html"], capture_output=True, check=True
    )
    assert shown.stdout == b"a\r\nb"
    assert git("status", "--porcelain=v2", "--branch", folder=repository) == before
    assert (repository / "thesis.tex").read_text() == "three"


def test_a_later_website_follows_the_earlier_one_and_files_of_others_stay(repository, tmp_path):
    first = commit(repository, site(tmp_path / "site", index="a", gone="b"))
    place = tmp_path / "other"
    git("worktree", "add", "--quiet", str(place), "pages", folder=repository)
    (place / "CNAME").write_text("results.example.org")
    (place / "own").mkdir()
    (place / "own" / "page.txt").write_text("mine")
    git("add", ".", folder=place)
    git("commit", "--quiet", "-m", "name", folder=place)
    git("worktree", "remove", str(place), folder=repository)
    second = commit(repository, site(tmp_path / "site", index="c"))
    assert names(repository) == [NO_JEKYLL, "CNAME", LIST, "index.html", "own"]
    log = git("rev-list", "pages", folder=repository).split()
    assert (log[0], log[2]) == (second, first) and len(log) == 3
    assert commit(repository, site(tmp_path / "site", index="c")) is None
    assert git("rev-parse", "pages", folder=repository).strip() == second


def test_a_branch_that_only_the_remote_has_is_followed(repository, tmp_path):
    commit(repository, site(tmp_path / "site", index="a"))
    git("clone", "--quiet", str(repository), str(tmp_path / "clone"), folder=tmp_path)
    made = commit(tmp_path / "clone", site(tmp_path / "site", index="b"))
    log = git("rev-list", "pages", folder=tmp_path / "clone").split()
    assert log == [made, git("rev-parse", "pages", folder=repository).strip()]


def test_the_branch_that_is_checked_out_is_refused_also_without_a_commit(repository, tmp_path):
    files = site(tmp_path / "site", index="a")
    with pytest.raises(Error, match=r"branch main is checked out in .*repository: name another"):
        commit(repository, files, "main")
    git("init", "--quiet", "--initial-branch", "pages", str(tmp_path / "new"), folder=tmp_path)
    with pytest.raises(Error, match="branch pages is checked out"):
        commit(tmp_path / "new", files)


def test_the_work_of_others_and_names_that_are_none_are_refused(repository, tmp_path):
    git("branch", "draft", folder=repository)
    before = git("rev-parse", "draft", folder=repository)
    files = site(tmp_path / "site", index="a")
    with pytest.raises(Error, match="branch draft has the work of others"):
        commit(repository, files, "draft")
    assert git("rev-parse", "draft", folder=repository) == before
    for name in ("-f", "a b", "a..b", ""):
        with pytest.raises(Error, match="cannot be the name of a branch"):
            commit(repository, files, name)


def test_a_folder_outside_a_repository_is_refused_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(Error, match="expected a Git repository: `git init` makes one there"):
        Repository(tmp_path)
    with pytest.raises(Error, match="found no folder"):
        Repository(Path(tmp_path, "missing"))


def test_without_git_the_message_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Error, match="git is not installed"):
        Repository(tmp_path)
