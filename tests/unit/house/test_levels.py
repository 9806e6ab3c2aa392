"""Which tests a level of `python -m tests` has."""

from types import SimpleNamespace

import pytest

from support.machines.paths import REPOSITORY
from tests import conftest

MARK = pytest.mark


def level(folder, *own, above=(), number=0):
    """The level of a case with marks of its own and of its file."""
    marks = [mark.mark for mark in (*own, *above)]
    item = SimpleNamespace(
        path=REPOSITORY / "tests" / folder / "test_x.py",
        own_markers=[mark.mark for mark in own],
        iter_markers=lambda: iter(marks),
        get_closest_marker=lambda name: next((m for m in marks if m.name == name), None),
    )
    return conftest.level_of(item, number)


def test_a_test_has_the_slowest_of_its_marks_or_that_of_its_file_or_folder():
    assert level("unit/study") == "quick"
    assert level("workflow") == "slow"
    assert level("workflow", MARK.quick) == "quick"
    assert level("unit/study", MARK.ci) == "ci"
    assert level("unit/study", above=[MARK.slow]) == "slow"
    assert level("unit/study", MARK.ci, above=[MARK.slow]) == "ci"
    assert level("containers", MARK.ci, MARK.slow) == "slow"  # a case of a test


def test_cases_rotate_with_the_number_so_that_all_run_in_turn():
    found = [
        [level("cluster", MARK.ci, MARK.one_in(3), number=n + i) for i in range(3)]
        for n in range(3)
    ]
    assert all(sorted(levels) == ["ci", "slow", "slow"] for levels in found)
    assert {levels.index("ci") for levels in found} == {0, 1, 2}
