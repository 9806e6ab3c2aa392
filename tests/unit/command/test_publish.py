"""dlbench publish, and dlbench site --git-branch: what they print, and their exit codes."""

import json
import os
import subprocess
import sys

import pytest

from support.history import made_histories as made
from support.machines.paths import REPOSITORY

pytestmark = pytest.mark.slow
CITATION = {"authors": [{"name": "A centre"}], "license": "MIT"}
WHO = {f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for citation in (CITATION, CITATION | {"license": "CC-BY-4.0"}):
        machine = {"machine": citation["license"][:3], "citation": json.dumps(citation)}
        made.add(tmp_path / "history", 0, {made.fields(): [1.0, 2.0]}, **machine)
    return tmp_path


def dlbench(*arguments):
    command = [sys.executable, REPOSITORY / "workflow_scripts/dlbench", *arguments]
    environment = os.environ | WHO
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_several_licences_end_with_2_and_one_that_is_named_with_the_next_step(folder):
    refused = dlbench("publish")
    assert refused.returncode == 2 and "1 campaign: CC-BY-4.0; 1 campaign: MIT" in refused.stderr
    assert not (folder / "results").exists()
    done = dlbench("publish", "history", "--license", "CC-BY-4.0", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert "out: 2 sessions of 2 campaigns, CC-BY-4.0\n" in done.stderr
    assert "hf upload NAME/DATA_SET out --repo-type dataset" in done.stderr
    assert (folder / "out" / ".zenodo.json").exists()


def test_a_website_is_committed_and_the_command_that_pushes_it_is_printed(folder):
    outside = dlbench("site", "--git-branch", "pages")
    assert outside.returncode == 2 and "expected a Git repository" in outside.stderr
    assert not (folder / "results").exists()
    subprocess.run(["git", "init", "--quiet", "my repository"], check=True)
    arguments = ("site", "--git-branch", "pages", "--git-repository", "my repository")
    first, second = dlbench(*arguments), dlbench(*arguments)
    assert first.returncode == second.returncode == 0, first.stderr
    assert "branch pages: commit " in first.stderr
    assert "branch pages: it has these pages already" in second.stderr
    assert "to publish it: git -C 'my repository' push origin pages" in first.stderr
