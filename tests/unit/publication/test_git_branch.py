"""git_branch: a website as a commit, without a work tree."""

import json
import os
import subprocess

from dlbench.publication.git_branch import NO_JEKYLL, Repository


def test_pages_are_commits_of_an_own_branch_and_the_work_tree_and_index_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "a")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@b")
    thesis, site = tmp_path / "thesis.tex", tmp_path / "site"
    site.mkdir()

    def git(*words):
        command = ["git", "-C", tmp_path, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def commit(**pages):
        for name, text in pages.items():
            (site / f"{name}.html").write_text(text)
        (site / "files.json").write_text(json.dumps({"files": [f"{name}.html" for name in pages]}))
        return Repository(tmp_path).commit("pages", site, "files.json", "Benchmark results")

    git("init", "--quiet", "--initial-branch", "main")
    thesis.write_text("one")
    git("add", "thesis.tex")
    git("commit", "--quiet", "-m", "thesis")
    thesis.write_text("two")
    git("add", "thesis.tex")
    thesis.write_text("three")
    first = commit(index="a", gone="b")
    assert git("rev-list", "pages").split() == [first]
    second = commit(index="c")
    assert git("rev-list", "pages").split() == [second, first]
    assert git("ls-tree", "--name-only", "pages").split() == [NO_JEKYLL, "files.json", "index.html"]
    assert git("show", "pages:index.html") == "c"
    assert commit(index="c") is None
    assert git("status", "--porcelain", "thesis.tex") == "MM thesis.tex\n"
    assert thesis.read_text() == "three"
