"""The programs in workflow_scripts/: flags, bad input, and what a start imports, which takes time.

A program that answers `--help` has imported what all of its starts import.
"""

import ast
import dataclasses
import subprocess
import sys

import pytest

from dlbench.command import dispatch
from dlbench.common import run_fields
from dlbench.common.own_code import PROGRAMS
from dlbench.study import runs
from dlbench.trainer import flags

# Each takes a tenth of a second or tens of MB.
HEAVY = {"matplotlib", "numpy", "pandas", "pyarrow", "scipy", "snakemake", "tensorflow"}
TABLES = {"numpy", "pyarrow"}
STATISTICS = TABLES | {"scipy"}
FIGURES = STATISTICS | {"pandas", "matplotlib"}
NEEDED = {
    "dlbench accept-nodes": STATISTICS,
    "dlbench report": STATISTICS,
    "dlbench baselines": TABLES,
    "collect_runs.py": STATISTICS,
    "dlbench compare": STATISTICS,
    "dlbench doctor": TABLES,
    "draw_figure.py": FIGURES,
    "dlbench export": STATISTICS,
    "dlbench gate": STATISTICS,
    "dlbench import": TABLES,
    "measure_baselines.py": {"numpy"},
    "dlbench partial": FIGURES,
    "dlbench site": STATISTICS,
    "start_run.py": {"numpy"},
    "train.py": {"numpy"},
    "train_external.py": TABLES,
    "dlbench archive": STATISTICS,
    "write_reference_pages.py": TABLES,
}
START = """
import contextlib, io, runpy, sys
program = sys.argv[1]
del sys.argv[0]
sys.path[0] = program.rpartition("/")[0]
said, code = io.StringIO(), None
with contextlib.redirect_stdout(said):
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        code = end.code
print((code, said.getvalue(), {name.partition(".")[0] for name in sys.modules}))
"""

LENET = ["--model", "lenet5", "--dataset", "synthetic", "--batch-per-device", "1", "--steps", "1"]
LENET += ["--log", "train.jsonl"]


def test_the_flags_of_the_trainer_are_the_fields_of_a_run():
    by_name = {action.dest: action for action in flags.parser()._actions}
    assert set(by_name) - {"help"} - set(flags.PLACES) == set(runs.FIELDS) - {"trainer"}
    for name, field in runs.FIELDS.items():
        if name == "environment":  # that of the framework
            assert flags.parse(None, LENET)[0].environment == field.default
        elif name in by_name and field.default is not dataclasses.MISSING:
            assert by_name[name].default == field.default, name
    for name, declared in run_fields.DECLARED.items():
        if declared.choices:
            assert by_name[name].choices == declared.choices, name


def test_bad_input_ends_a_program_with_one_clear_line(tmp_path):
    command = [sys.executable, PROGRAMS / "start_bound.py", "--log=x", "--output=y", "--spec={}"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert finished.returncode == 1
    assert finished.stderr.startswith("error: expected the fields of a run as JSON")
    assert finished.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["make-image", "prepare-image", "report-images", "environment"])
def test_what_a_machine_without_our_packages_starts_needs_the_standard_library_alone(command):
    subprocess.run(
        [sys.executable, "-S", "-E", PROGRAMS / "dlbench", command, "--help"],
        check=True,
        stdout=subprocess.DEVNULL,
    )


@pytest.mark.ci
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "program",
    [
        *sorted(p.name for p in PROGRAMS.glob("*.py")),
        *(f"dlbench {n}" for n in (*dispatch.names(), *dispatch.STEPS)),
    ],
)
def test_a_program_says_what_it_does_and_imports_no_more_than_every_start_needs(program):
    name, *command = program.split()
    finished = subprocess.run(
        [sys.executable, "-c", START, PROGRAMS / name, *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    code, output, packages = ast.literal_eval(finished.stdout)
    assert code == 0 and "usage:" in output and len(output.split("\n\n")[1]) > 20
    assert packages & HEAVY <= NEEDED.get(program, set()), "import it in the function that needs it"
