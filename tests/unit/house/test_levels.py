"""`python -m tests`: which tests a level has, and what stands at the end of a run."""

import collections
import sys
from types import SimpleNamespace

import pytest

from support.machines.paths import REPOSITORY
from tests import __main__ as runner
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


def suite(name, code, **how):
    return runner.Suite(name, (sys.executable, "-c", code), **how)


def test_a_suite_that_fails_or_does_not_run_or_takes_too_long_is_a_fault(capfd):
    spin = "import time; t = time.process_time() + 0.3\nwhile time.process_time() < t: pass"
    suites = [
        suite("first", "print('seen')", trains=False),
        suite(runner.ENVIRONMENTS.name, "raise SystemExit(1)", trains=False),
        suite("busy", spin, trains=False),
        suite("trainer", "print('never')"),
    ]
    results = runner.run(suites, [])
    assert sorted(result.name for result in results) == ["busy", "environments", "first"]
    assert next(result.cpu_s for result in results if result.name == "busy") >= 0.3
    assert runner.faults_of(results, suites, {"busy": 0.004, "first": 1.0}) == [
        "environments failed",
        "trainer did not run, since its environment is missing",
        "busy took 0.0 of 0.0 CPU-minutes in tests/budget.toml",
    ]
    output = capfd.readouterr().out
    assert "seen" in output and "never" not in output


def test_what_a_report_of_pytest_counts_is_added_up_with_reasons(tmp_path):
    report = tmp_path / "report"
    report.write_text(
        "<testsuites><testsuite><testcase/><testcase/><testcase><failure/></testcase>"
        '<testcase><skipped message="no Slurm"/></testcase></testsuite></testsuites>'
    )
    counts, skipped = runner.counted(report)
    assert (counts, skipped) == ({"passed": 2, "failed": 1, "skipped": 1}, ["no Slurm"])
    assert runner.counted(tmp_path / "none") == (collections.Counter(), [])


def test_the_last_line_says_what_passed_what_did_not_and_how_to_run_the_rest():
    result = runner.Result("unit", 0, 0.0, 60.0, 90.0, collections.Counter(passed=3, failed=1), [])
    line = runner.summary("quick", [result, result], ["unit failed"], 1.5)
    assert line.startswith("6 passed, 2 failed, 0 skipped in 1.5 minutes; unit failed; the rest: ")
    assert line.endswith("python -m tests --ci, then --all")


def test_options_are_pytests_but_for_the_level():
    assert runner.parsed([]) == ("quick", [])
    assert runner.parsed(["--all", "-k", "x"]) == ("slow", ["-k", "x"])
    with pytest.raises(SystemExit):
        runner.parsed(["--ci", "--all"])
