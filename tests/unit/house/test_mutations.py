"""tests/mutations.py: what is changed in a function, what is drawn, and what is noticed."""

import ast
import subprocess
import sys

import pytest

from tests import mutations

SOURCE = '''
def rate(items: int = 2, *, seconds=1.5, known=True):
    """Ä: items a second, 0 if 1 is missing."""
    if not items or seconds is None:
        print("missing: 3")
        return 0
    if seconds < 4:
        raise ValueError(f"{seconds - 5} of 6")
    shortest = min(seconds, 7, key=abs)
    return [one * shortest for one in [items] if one + 8 not in {"ä": "a" + "b"}]
'''


def test_operators_conditions_numbers_keywords_and_early_ends_are_changed_and_messages_are_not():
    (function,) = mutations.functions("room/one.py", SOURCE)
    found = mutations.mutations(function.node)
    assert {(ast.unparse(before), ast.unparse(after)) for _, before, after in found} == {
        ("2", "3"),
        ("2", "4"),
        ("1.5", "2.5"),
        ("1.5", "3.0"),
        ("True", "False"),
        ("not items or seconds is None", "not (not items or seconds is None)"),
        ("not items or seconds is None", "not items and seconds is None"),
        ("not items", "items"),
        ("seconds is None", "seconds is not None"),
        ("return 0", "pass"),
        ("0", "1"),
        ("0", "2"),
        ("seconds < 4", "not seconds < 4"),
        ("seconds < 4", "seconds <= 4"),
        ("4", "5"),
        ("4", "8"),
        ("min(seconds, 7, key=abs)", "max(seconds, 7, key=abs)"),
        ("min(seconds, 7, key=abs)", "min(seconds, 7)"),
        ("7", "8"),
        ("7", "14"),
        ("one * shortest", "one / shortest"),
        ("one + 8 not in {'ä': 'a' + 'b'}", "not one + 8 not in {'ä': 'a' + 'b'}"),
        ("one + 8 not in {'ä': 'a' + 'b'}", "one + 8 in {'ä': 'a' + 'b'}"),
        ("one + 8", "one - 8"),
        ("8", "9"),
        ("8", "16"),
    }


hidden = pytest.mark.skipif(not mutations.alone(), reason="this kernel hides no processes from us")


@hidden
def test_tests_of_changed_code_see_no_other_process_that_it_could_end():
    program = "import glob; print(len(glob.glob('/proc/[0-9]*')))"
    command = [*mutations.alone(), sys.executable, "-c", program]
    assert int(subprocess.check_output(command)) == 2  # the shell and the program


@hidden
def test_a_change_is_caught_if_a_test_fails_for_it_alone(tmp_path):
    module, tests = tmp_path / mutations.PACKAGE / "room/one.py", tmp_path / "tests/unit/room"
    module.parent.mkdir(parents=True)
    tests.mkdir(parents=True)
    example = '"""\n    >>> double(1)\n    2\n    """'
    module.write_text(f"def double(x):\n    {example}\n    return 2 * x\n")
    (tests / "test_one.py").write_text(
        "from dlbench.room.one import double\n"
        "def test_that_always_fails():\n    assert False\n"
        "def test_double():\n    assert double(2) == 4\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = workflow_scripts\n")
    for folder in module.parents[:2]:
        (folder / "__init__.py").write_text("")
    before = module.read_text()
    caught = mutations.fate("room/one.py", before.replace("2 * x", "x + 1"), tmp_path)
    assert caught == ("caught", "tests/unit/room/test_one.py::test_double")
    by_example = mutations.fate("room/one.py", before.replace("return 2", "return 3"), tmp_path)
    assert by_example == ("caught", "workflow_scripts/dlbench/room/one.py::dlbench.room.one.double")
    survived = mutations.fate("room/one.py", before.replace("2 * x", "x + x"), tmp_path)
    assert survived == ("survived", "one.py, test_one.py")
    assert module.read_text() == before
