"""dlbench status: config files, watching, mistakes."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.machines.paths import REPOSITORY
from support.programs.in_process import dlbench
from support.runs.made_runs import SETTINGS


def test_the_program_lays_config_files_over_the_config(study):
    Path("config.yaml").write_text(json.dumps(SETTINGS))
    Path("site.yaml").write_text("site: {name: cluster, nodes: 8}\nrepeats: 1\n")
    Path("other.yaml").write_text("study: other\nrepeats: 3\n")
    finished = dlbench("status", "--configfile", "other.yaml", "--json")
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout)
    # A file about the site lies between the config and the study.
    assert (found["study"], found["site"]) == ("other", "cluster")
    assert found["combinations"]["pending"] == 6


@pytest.mark.ci
def test_watching_shows_it_again_and_again(study):
    Path("config.yaml").write_text(json.dumps(SETTINGS))
    command = [sys.executable, REPOSITORY / "workflow_scripts/dlbench", "status"]
    command += ["--watch", "0.01", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        shown_ids = [json.loads(process.stdout.readline())["study"] for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert shown_ids == ["test"] * 3
    assert process.returncode == 0
    assert (
        "--jobs: expected a whole number of at least 1" in dlbench("status", "--jobs", "0").stderr
    )
    assert "--watch: expected a number above 0" in dlbench("status", "--watch", "0").stderr


def test_a_bad_config_ends_the_program_with_its_mistake(study):
    Path("config.yaml").write_text(json.dumps(SETTINGS | {"repeats": 0}))
    finished = dlbench("status")
    assert finished.returncode == 2
    assert finished.stderr.startswith("error: repeats: expected a whole number from 1 to 10000, or")
