"""command_line: how programs exit."""

import subprocess
import sys

from support.machines.paths import REPOSITORY

PROGRAM = """
import atexit, gc
from dlbench.common.command_line import run_program
atexit.register(lambda: print(len(gc.get_objects()) < gc.get_freeze_count()))
run_program(lambda: None)
"""


def test_the_end_of_a_program_looks_through_nothing_that_was_imported():
    command = [sys.executable, "-c", PROGRAM]
    folder = REPOSITORY / "workflow_scripts"
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert said.stdout == "True\n"
