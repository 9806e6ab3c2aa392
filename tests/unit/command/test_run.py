"""dlbench run: Snakemake with a study, as its plain command."""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench import Error
from dlbench.command import starting
from support.machines.paths import REPOSITORY
from support.programs.in_process import dlbench

SNAKEFILE = 'rule all:\n    shell: "echo ran {config}"\n'


def start(*arguments):
    command = [sys.executable, REPOSITORY / "workflow_scripts/dlbench", "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(here):
    Path("Snakefile").write_text(SNAKEFILE)
    Path("config.yaml").write_text("a: 1\n")
    Path("mine").mkdir()
    Path("mine/config.yaml").write_text("b: 2\n")
    return here


@pytest.mark.ci
def test_the_plain_command_is_printed_and_started(folder):
    finished = start("mine", "-c1", "-q", "rules")
    assert finished.returncode == 0, finished.stderr
    first = finished.stderr.splitlines()[0]
    assert first == "+ snakemake -c1 -q rules --configfile mine/config.yaml"
    assert "ran {b: 2}" in finished.stdout


def test_a_folder_without_a_workflow_gets_that_of_dlbench_and_snakemakes_exit_code(here):
    Path("snakemake.py").write_text("raise SystemExit(7)")  # started in the place of Snakemake
    Path("config.yaml").touch()
    finished = start()
    assert finished.returncode == 7
    assert finished.stderr == f"+ snakemake --snakefile {shlex.quote(f'{REPOSITORY}/Snakefile')}\n"


def test_the_own_config_is_the_plain_workflow(folder):
    finished = dlbench("run", "config.yaml", "-c1", "-n")
    assert finished.stderr == "+ snakemake -c1 -n\n"
    assert finished.became == [sys.executable, "-m", "snakemake", "-c1", "-n"]


def test_what_snakemake_would_not_name_is_named_before_it_starts(folder, monkeypatch):
    Path("mine/config.yaml").write_text("a: 1\n\tb: 2\n")
    finished = dlbench("run", "mine", "-n")
    assert finished.returncode == 2 and "mine/config.yaml, line 2: no YAML" in finished.stderr
    Path("numpy.py").touch()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    monkeypatch.setenv("PYTHONPATH", f":{folder}")
    found = f"PYTHONPATH puts {folder}/numpy.py before the installed numpy\n"
    assert dlbench("run").stderr == f"{found}+ snakemake\n"


def test_a_study_is_a_file_a_folder_or_a_name_also_for_other_commands(folder, monkeypatch):
    for named in ("mine/config.yaml", "mine"):
        assert starting.study_file(named) == "mine/config.yaml"
    monkeypatch.chdir(REPOSITORY)
    parser = argparse.ArgumentParser()
    starting.add_configfile(parser)
    assert parser.parse_args([]).configfile == []
    named = parser.parse_args(["--configfile", "overhead", "config.yaml"])
    assert named.configfile == ["studies/overhead/config.yaml", "config.yaml"]
    with pytest.raises(Error, match=r"no study 'overhaed'.*did you mean 'overhead'"):
        starting.study_file("overhaed")
