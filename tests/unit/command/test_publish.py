"""dlbench publish, and dlbench site --git-branch: what they print, and their exit codes."""

import json
import shutil
import subprocess

import pytest

from support.history import made_histories as made
from support.machines.paths import REPOSITORY
from support.programs.in_process import dlbench


@pytest.mark.ci
def test_a_history_is_published_as_a_data_set_and_as_a_branch_of_pages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "a")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@b")
    for week, license_id in enumerate(("MIT", "CC-BY-4.0")):
        citation = {"authors": [{"name": "A centre"}], "license": license_id}
        made.add(
            tmp_path / "history", week, {made.fields(): [1.0, 2.0]}, citation=json.dumps(citation)
        )
    shutil.copy(REPOSITORY / "config.yaml", tmp_path)
    refused = dlbench("publish")
    assert refused.returncode == 2 and "1 campaign: CC-BY-4.0; 1 campaign: MIT" in refused.stderr
    done = dlbench("publish", "history", "--license", "CC-BY-4.0", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert "out: 2 sessions of 2 campaigns, CC-BY-4.0\n" in done.stderr
    assert (tmp_path / "out" / ".zenodo.json").exists()
    subprocess.run(["git", "init", "--quiet", "my repository"], check=True)
    committed = dlbench("site", "--git-branch", "pages", "--git-repository", "my repository")
    assert committed.returncode == 0 and "branch pages: commit " in committed.stderr
    assert "to publish it: git -C 'my repository' push origin pages" in committed.stderr
