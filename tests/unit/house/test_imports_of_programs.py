"""The --help of each program and command, and what it imports, which takes time at every start.

A program that answers `--help` has imported what all of its starts import.
"""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

from dlbench.command import commands

PROGRAMS = Path(__file__).parents[3] / "workflow_scripts"
# Each takes a tenth of a second or tens of MB; who needs one only now and then imports it late.
HEAVY = {"matplotlib", "numpy", "pandas", "pyarrow", "scipy", "snakemake", "tensorflow"}
TABLES = {"numpy", "pyarrow"}
STATISTICS = TABLES | {"scipy"}
FIGURES = STATISTICS | {"pandas", "matplotlib"}
NEEDED = {
    "add_campaign.py": STATISTICS,
    "analyse_history.py": STATISTICS,
    "dlbench accept-nodes": STATISTICS,
    "dlbench report": STATISTICS,
    "dlbench baselines": TABLES,
    "collect_runs.py": STATISTICS,
    "dlbench compare": STATISTICS,
    "dlbench doctor": TABLES,
    "draw_figure.py": FIGURES,
    "draw_history.py": FIGURES,
    "dlbench export": STATISTICS,
    "dlbench gate": STATISTICS,
    "dlbench import": TABLES,
    "measure_baselines.py": {"numpy"},
    "dlbench partial": FIGURES,
    "dlbench publish": STATISTICS,
    "dlbench rerun-bases": STATISTICS,
    "dlbench site": STATISTICS,
    "start_run.py": {"numpy"},
    "train.py": {"numpy"},
    "train_external.py": TABLES,
    "dlbench archive": STATISTICS,
    "write_reference_pages.py": TABLES,
}
# Modules of Python and of the library: of programs that need nothing heavy, the most is 379.
MAX_MODULES = 379
ROOM = 1.15

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
print((code, said.getvalue(), [*sys.modules]))
"""

of_each_program = pytest.mark.parametrize(
    "program",
    [
        *sorted(path.name for path in PROGRAMS.glob("*.py")),
        *(f"dlbench {name}" for name in commands.names()),
    ],
)


@functools.cache
def run_help(program):
    """(exit code, output, imported modules) of a program with --help."""
    name, *command = program.split()
    finished = subprocess.run(
        [sys.executable, "-c", START, PROGRAMS / name, *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    return ast.literal_eval(finished.stdout)


@pytest.mark.one_in(3)
@of_each_program
def test_every_program_says_what_it_does(program):
    code, output, _ = run_help(program)
    assert code == 0
    assert "usage:" in output
    assert len(output.split("\n\n")[1]) > 20


@pytest.mark.one_in(3)
@of_each_program
def test_a_program_imports_what_its_start_needs_and_no_more(program):
    _, _, modules = run_help(program)
    heavy = HEAVY & {name.partition(".")[0] for name in modules}
    surplus = heavy - NEEDED.get(program, set())
    assert not surplus, (
        f"{program} imports {', '.join(sorted(surplus))} at its start; import it in the "
        "function that needs it or, where every start does, add it to NEEDED here"
    )
    if not heavy:
        assert len(modules) <= MAX_MODULES * ROOM, (
            f"{program} imports {len(modules)} modules at its start, expected at most "
            f"{MAX_MODULES} and 15 % more; where it must, raise MAX_MODULES here"
        )
