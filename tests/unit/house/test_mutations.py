"""tests/mutations.py: what is changed in a function, what is drawn, and what is noticed."""

import ast
import re
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


def test_a_changed_text_is_python_with_another_piece_in_that_place_and_all_else_as_it_was():
    (function,) = mutations.functions("room/one.py", SOURCE)
    for _, before, after in mutations.mutations(function.node):
        text, new = mutations.mutated(SOURCE, before, after), ast.unparse(after)
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(SOURCE))
        old = ast.get_source_segment(SOURCE, before)
        places = [place.start() for place in re.finditer(re.escape(old), SOURCE)]
        begins, ends = zip(*((SOURCE[:at], SOURCE[at + len(old) :]) for at in places), strict=True)
        assert text.startswith(begins) and text.endswith(ends), text
        assert any(text in (f"{a}{new}{b}", f"{a}({new}){b}") for a in begins for b in ends), text


def test_the_same_seed_draws_the_same_and_rooms_alike():
    known = [
        mutations.Function(f"{room}/{number}.py", "rate", ast.parse(SOURCE).body[0])
        for room, functions in (("many", 40), ("few", 3))
        for number in range(functions)
    ]
    drawn = mutations.drawn(known, 1, 10)
    assert [one.module.split("/")[0] for one in drawn].count("few") == 3
    assert drawn == mutations.drawn(known[::-1], 1, 10) != mutations.drawn(known, 2, 10)
    assert mutations.drawn(known[:40], 1, 7) == [
        one for one in drawn if one.module.startswith("many")
    ]
    changed = [
        {" -> ".join(map(ast.unparse, mutations.one_mutation(drawn[0], seed))) for seed in seeds}
        for seeds in ([1] * 20, range(20))
    ]
    assert len(changed[0]) == 1 and len(changed[1]) > 5


def test_tests_named_after_a_module_come_before_those_that_import_it(tmp_path):
    for name, text in {
        "plan/test_jobs.py": "import dlbench.plan.planning",
        "plan/test_planning_batches.py": "",
        "cluster/test_site.py": "from dlbench.plan import jobs, planning",
        "house/test_rooms.py": "from dlbench.plan import planning",
    }.items():
        (tmp_path / "tests/unit" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests/unit" / name).write_text(text)
    library = tmp_path / mutations.PACKAGE / "plan"
    library.mkdir(parents=True)
    (library / "jobs.py").write_text("from dlbench.plan import sizes")
    near = [path.name for path in mutations.near("plan/planning.py", tmp_path)]
    assert near == [
        "test_planning_batches.py",
        "test_jobs.py",
        "test_site.py",
        "test_rooms.py",
    ]
    near = [path.name for path in mutations.near("command/site.py", tmp_path)]
    assert near == ["test_site.py"]
    near = [path.name for path in mutations.near("plan/sizes.py", tmp_path)]
    assert near == ["test_jobs.py"]  # named after a module that imports it
    # Of a module that nobody imports, those of its room.
    near = [path.name for path in mutations.near("plan/figures.py", tmp_path)]
    assert near == ["test_jobs.py", "test_planning_batches.py"]


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
