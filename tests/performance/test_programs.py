"""Programs of this folder run, with their smallest arguments, and print their figure."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
REPOSITORY = FOLDER.parents[1]
TRAINER = REPOSITORY / "envs/train/.venv/bin/python"
# Program: the words that make it as short as it can be, and what it prints at its end.
OF_THE_WORKFLOW = {
    "aggregation": ("--runs 20 --steps 20", r"export_dataset.py: [\d.]+ CPU-s"),
    "archive": ("--runs 20 --steps 10 --small 20", r"tables of runs there: [\d.]+ s"),
    "conversion": ("--images 40 --rounds 1", r"peak memory of a converting process: \d+ MB"),
    "download": ("--pairs 2 --megabytes 100", r"[\d.]+ of curl"),
    "drift": ("--studies 2", r"cells beyond, of 144"),
    "figures": ("--runs 20 --steps 10", r"at once +[\d.]+ s"),
    "import_logs": ("--steps 2000 --rounds 1", r"program / naive, peak memory: [\d.]+"),
    "neighbours": ("--readings 20", r"% of a core"),
    "planning": ("--combinations 20", r"schedules:\s+train 20"),
    "report": ("--runs 20", r"together +[\d.]+ s"),
}
OF_THE_TRAINER = {
    "provenance": ("--runs 1", r"gathered: +[\d.]+"),
    "reading": ("--rounds 1", r"images per CPU-second .* ratio [\d.]+"),
    "real_data": ("--model lenet5 --batch 8 --steps 4 --rounds 1", r"ratio [\d.]+"),
    "sampling": ("--samples 20 --rounds 2", r"% of a core"),
    "training_step": ("--pairs 2 --case lenet5:8:2", r"horovod|Horovod"),
    "two_processes": ("--model lenet5 --batch 8 --steps 4 --rounds 1", r"horovod: [\d.]+ of the"),
}
# What these need is not on every machine: Slurm's daemons, prepared images, a checkout of a peer.
BY_HAND = {"slurm", "containers", "tf_cnn_benchmarks"}
MISSED = ("drift", "reading", "archive", "figures", "report")  # end with 1 where a target is missed


def test_every_program_is_run_here_or_said_to_be_run_by_hand():
    programs = {path.stem for path in FOLDER.glob("*.py")} - {Path(__file__).stem}
    assert programs == OF_THE_WORKFLOW.keys() | OF_THE_TRAINER.keys() | BY_HAND


def run(python, name, words):
    program = f"tests/performance/{name}.py"
    return subprocess.run(
        [python, program, *words.split()], cwd=REPOSITORY, capture_output=True, text=True
    )


def check(finished, name, figure):
    printed = finished.stdout + finished.stderr
    assert "Traceback" not in printed, printed[-3000:]
    assert finished.returncode in ((0, 1) if name in MISSED else (0,)), printed[-3000:]
    assert re.search(figure, printed), printed[-3000:]


@pytest.mark.parametrize("name", sorted(OF_THE_WORKFLOW))
def test_a_program_of_the_workflow_ends_well_and_prints_its_figure(name):
    words, figure = OF_THE_WORKFLOW[name]
    check(run(sys.executable, name, words), name, figure)


@pytest.mark.parametrize("name", sorted(OF_THE_TRAINER))
def test_a_program_of_the_trainer_ends_well_and_prints_its_figure(name):
    if not TRAINER.is_file():
        pytest.skip("envs/train is not installed: make_environment.py installs it")
    words, figure = OF_THE_TRAINER[name]
    check(run(TRAINER, name, words), name, figure)


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_a_program_that_needs_more_says_how_it_is_used(name):
    python = TRAINER if name == "tf_cnn_benchmarks" and TRAINER.is_file() else sys.executable
    check(run(python, name, "--help"), name, "usage")
