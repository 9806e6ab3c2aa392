"""phrases, name_patterns, command_line: merged reasons, sets of names, how programs exit."""

import re
import subprocess
import sys

import pytest

from dlbench.common import phrases
from support.machines.paths import REPOSITORY


@pytest.mark.parametrize(
    ("many", "one"),
    [
        (["171.2 items/s, 186 at the median"] * 2, "171.2 items/s, 186 at the median"),
        (["171.2 items/s, 186 by", "99 items/s, 120.5 by"], "99 to 171.2 items/s, 120.5 to 186 by"),
        (["1e-3 s", "2e-4 s", "5 s"], "2e-4 to 5 s"),
        (["4 steps", "3 steps"], "3 or 4 steps"),
        (["4 steps", "3 steps", "5 steps"], "3 to 5 steps"),
        (["3.0 s", "4 s"], "3.0 to 4 s"),
        (["3 more files", "7 more files"], "3 to 7 more files, depending on the run"),
        (["x and 3 more files"] * 2, "x and 3 more files"),
        (["bound to 10.0.0.1", "bound to 10.0.0.2"], "bound to \u2026"),
        (["no number"], "no number"),
    ],
)
def test_numbers_become_the_least_and_the_greatest(many, one):
    assert phrases.merged([""] * len(many), many) == [one] * len(many)


def test_numbers_of_two_models_are_kept_apart_and_what_is_equal_is_said_once():
    reasons = ["9 items/s", "not here", "70 items/s", "not here", "8 items/s"]
    cnn, mlp = "cnn: 8 or 9 items/s", "mlp: 70 items/s"
    found = phrases.merged(["cnn", "cnn", "mlp", "mlp", "cnn"], reasons)
    assert found == [cnn, "not here", mlp, "not here", cnn]


@pytest.mark.parametrize("names", [["a"], ["ab", "abc", "b"], ["x.1", "x+1"], ["", "a"]])
def test_a_pattern_matches_its_names_and_no_others(names):
    pattern = phrases.any_of(names)
    others = ["", "a", "ab", "abc", "abcd", "b", "x.1", "x+1", "xx1"]
    assert [one for one in others if re.fullmatch(pattern, one)] == sorted(names, key=others.index)


def test_without_names_nothing_matches():
    assert not re.match(phrases.any_of([]), "")


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
