"""dlbench history: the workflow's target, as its plain command."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.machines.paths import REPOSITORY

DLBENCH = REPOSITORY / "workflow_scripts/dlbench"
SNAKEMAKE = "import sys\nprint('snakemake', *sys.argv[1:])\nsys.exit(7)\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder in which snakemake is a program that prints its arguments."""
    monkeypatch.chdir(tmp_path)
    Path("snakemake.py").write_text(SNAKEMAKE)
    Path("Snakefile").touch()
    Path("years.yaml").write_text("history: [results]\n")


def start(*arguments):
    command = [sys.executable, DLBENCH, "history", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("before", [True, False])
def test_the_plain_command_is_printed_and_started_and_its_exit_code_is_returned(before):
    files = ["--configfile", "years.yaml"]
    finished = start(*files, "--", "-n") if before else start("--", "-n", *files)
    assert finished.returncode == 7, finished.stderr
    assert finished.stderr.startswith("+ snakemake history -n --configfile years.yaml\n")
    assert finished.stdout == "snakemake history -n --configfile years.yaml\n"


def test_a_config_without_sources_is_refused_and_nothing_is_started():
    finished = start()
    assert (finished.returncode, finished.stdout) == (2, "")
    assert "expected archives and results folders under the key history" in finished.stderr
