"""Programs that measure run, with their smallest arguments, and hand over their figures."""

import json
import os
import subprocess
import sys

import pytest

from support.results import chromium
from tests.performance.bench import REPOSITORY
from tests.performance.bench.figure import Figure
from tests.performance.bench.programs import FILES, PROGRAMS, command

RUN_HERE = {name: program for name, program in PROGRAMS.items() if program.smallest}
BY_HAND = PROGRAMS.keys() - RUN_HERE.keys()
# They compile or start processes for minutes; what they share with others is run with those.
SLOW = {
    *("compile_modes", "jax_processes", "jax_step", "model_work", "planning", "real_data"),
    *("torch_processes", "torch_step", "two_processes"),
}
# Loops that PyTorch compiles for one number at a time: to see which vectors there are is slow.
SCALAR = {"TORCHINDUCTOR_VEC_ISA_OK": "0"}


def test_every_program_is_listed():
    assert FILES.keys() == PROGRAMS.keys()


def run(name, *words):
    program = PROGRAMS[name]
    if not program.python.is_file():
        pytest.skip(f"envs/{program.environment} is not installed: dlbench environment installs it")
    if program.needs == "Chromium" and not chromium.installed():
        pytest.skip("there is no Chromium here")
    finished = subprocess.run(
        command(name, words),
        cwd=REPOSITORY,
        env=os.environ | SCALAR,
        capture_output=True,
        text=True,
    )
    printed = finished.stdout + finished.stderr
    assert finished.returncode == 0, printed[-3000:]
    return printed


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in RUN_HERE],
)
def test_a_program_ends_well_and_hands_over_the_figures_that_it_prints(name, tmp_path):
    file = tmp_path / "figures"
    printed = run(name, *RUN_HERE[name].smallest.split(), "--json", file)
    figures = [Figure(**json.loads(line)) for line in file.read_text().splitlines()]
    assert figures
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures:
        assert str(figure) in printed.splitlines()
        assert all(isinstance(value, float) for value in figure.values)


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_a_program_that_is_run_by_hand_says_how_it_is_used_and_what_it_needs(name):
    assert "usage" in run(name, "--help")
    assert PROGRAMS[name].needs


def test_all_are_run_one_after_the_other_even_if_one_fails_and_their_page_is_made(tmp_path):
    file = tmp_path / "performance.json"
    all_of = [sys.executable, "-m", "tests.performance", "containers", "drift", "--smallest"]
    finished = subprocess.run(
        [*all_of, "--file", file], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    assert "[2/2] drift" in finished.stdout
    results = json.loads(file.read_text())
    failed, ended = results["programs"]["containers"], results["programs"]["drift"]
    assert "the following arguments are required: forms" in failed["error"]
    assert not failed["figures"] and ended["figures"] and not ended["error"]
    (session,) = results["sessions"].values()
    assert len(session["commit"]) == 40
    assert session["machine"]["cores"] >= 1 and session["versions"]["workflow"]["snakemake"]
    page = file.with_suffix(".md").read_text()
    assert "**failed**" in page and ended["figures"][0]["name"] in page


def test_a_program_that_there_is_not_is_refused_before_any_other_is_run(tmp_path):
    misspelt = [sys.executable, "-m", "tests.performance", "drift", "drfit"]
    finished = subprocess.run(misspelt, cwd=REPOSITORY, capture_output=True, text=True)
    assert finished.returncode == 2
    assert "no program drfit" in finished.stderr and "[1/" not in finished.stdout
