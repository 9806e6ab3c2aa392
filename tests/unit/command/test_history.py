"""dlbench history: the workflow's target, as its plain command."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.machines.paths import REPOSITORY
from support.programs.in_process import dlbench

SNAKEMAKE = "import sys\nprint('snakemake', *sys.argv[1:])\nsys.exit(7)\n"


@pytest.fixture(autouse=True)
def folder(here):
    """A folder in which snakemake is a program that prints its arguments."""
    Path("snakemake.py").write_text(SNAKEMAKE)
    Path("Snakefile").touch()
    shutil.copy(REPOSITORY / "config.yaml", ".")
    Path("years.yaml").write_text("history: [results]\n")


def test_the_plain_command_is_printed_and_started_and_its_exit_code_is_returned():
    command = [sys.executable, REPOSITORY / "workflow_scripts/dlbench", "history"]
    command += ["--configfile", "years.yaml", "--", "-n"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 7, finished.stderr
    assert finished.stderr.startswith("+ snakemake history -n --configfile years.yaml\n")
    assert finished.stdout == "snakemake history -n --configfile years.yaml\n"


def test_a_config_that_snakemake_is_given_counts():
    words = ["-n", "--configfile", "years.yaml"]
    assert dlbench("history", "--", *words).became[2:] == ["snakemake", "history", *words]


def test_a_config_without_sources_is_refused_and_nothing_is_started():
    finished = dlbench("history")
    assert (finished.returncode, finished.became) == (2, None)
    assert "expected archives and results folders under the key history" in finished.stderr
