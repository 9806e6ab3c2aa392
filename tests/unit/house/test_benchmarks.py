"""What the programs of benchmarks share: figures, rounds, and results that are kept."""

import re
import sys

import pytest

from benchmarks import REPOSITORY, measuring
from benchmarks import __main__ as benchmarks
from benchmarks.measuring import Figure


@pytest.mark.parametrize(
    ("values", "bounds", "verdict"),
    [
        ((0.9, 1.0, 1.4), {"at_least": 1}, "met"),
        ((0.9, 0.99, 1.4), {"at_least": 1}, "not met"),
        ((0.1, 1.3, 1.4), {"at_most": 1.3}, "met"),
        ((0.1, 1.31, 1.4), {"at_most": 1.3}, "not met"),
        ((float("nan"),), {"at_most": 1}, "not met"),
        ((0.7,), {}, ""),
    ],
)
def test_a_target_is_met_or_not_by_the_median_of_all_rounds(values, bounds, verdict):
    assert Figure("speed", values, **bounds).verdict == verdict


def test_rounds_run_all_calls_and_every_second_one_backwards():
    order = []
    calls = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}
    assert measuring.in_turns(3, calls) == {"a": [1, 4, 5], "b": [2, 3, 6]}
    assert order == list("abbaab")
    assert measuring.ratios([1, 4, 5], [2, 2, 10]) == [0.5, 2, 0.5]


def test_the_time_and_memory_of_a_command_are_those_of_its_process():
    code = "data = b'x' * 200_000_000; print(sum(range(2_000_000)))"
    used = measuring.run([sys.executable, "-c", code])
    assert 200 < used.peak_mb < 300
    assert 0 < used.cpu_s <= 2 * used.wall_s
    assert used.output == "1999999000000\n"


def test_the_readme_has_every_program_and_marks_those_that_run_only_if_they_are_named():
    table = (REPOSITORY / "benchmarks/README.md").read_text()
    rows = re.findall(r"^\| `(\w+)`( \*)? \|", table, re.MULTILINE)
    assert rows == [(name, " *" if one.needs else "") for name, one in benchmarks.PROGRAMS.items()]
    others = {"__init__", "__main__", "measuring"}
    files = {path.stem for path in (REPOSITORY / "benchmarks").glob("*.py")}
    assert files - others == benchmarks.PROGRAMS.keys()
