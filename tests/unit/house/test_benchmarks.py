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


def test_a_figure_has_median_least_and_most_and_the_target():
    figure = Figure("memory", (1350.2, 41.5, 361.04), "MB", at_most=360)
    shown = "361 MB (41.5 .. 1350, 3 rounds)"
    assert figure.cells == ("memory", shown, "at most 360", "not met")
    assert Figure("memory", (0.5,), at_least=0.4).cells == ("memory", "0.5", "at least 0.4", "met")


def test_rounds_run_all_calls_and_every_second_one_backwards():
    order = []
    calls = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}
    assert measuring.in_turns(3, calls) == {"a": [1, 4, 5], "b": [2, 3, 6]}
    assert order == list("abbaab")
    assert measuring.ratios([1, 4, 5], [2, 2, 10]) == [0.5, 2, 0.5]


def test_a_command_that_fails_ends_the_program_with_what_it_printed():
    with pytest.raises(SystemExit, match="no luck"):
        measuring.run([sys.executable, "-c", "print('no luck'); raise SystemExit(3)"])


def test_the_time_and_memory_of_a_command_are_those_of_its_process():
    code = "data = b'x' * 200_000_000; print(sum(range(2_000_000)))"
    used = measuring.run([sys.executable, "-c", code])
    assert 200 < used.peak_mb < 300
    assert 0 < used.cpu_s <= 2 * used.wall_s
    assert used.output == "1999999000000\n"


def test_figures_of_one_commit_and_machine_are_kept_together(tmp_path, monkeypatch):
    file = tmp_path / "benchmarks.json"
    monkeypatch.setattr(benchmarks, "RESULTS", file)
    assert benchmarks.kept({"commit": "a"}) == {"session": {"commit": "a"}, "programs": {}}
    file.write_text('{"session": {"commit": "a"}, "programs": {"drift": {}}}')
    assert benchmarks.kept({"commit": "a"})["programs"] == {"drift": {}}
    assert benchmarks.kept({"commit": "b"}) == {"session": {"commit": "b"}, "programs": {}}


def test_the_table_has_a_row_for_each_figure_and_says_why_a_program_failed():
    figures = [Figure("a", (1.0, 3.0, 2.0), "s", at_most=1)._asdict()]
    ended = {
        "date": "2026-11-22", "seconds": 61.4, "arguments": "--runs 3", "others_cpu_cores": 0.1,
        "figures": figures, "error": "no luck",
    }  # fmt: skip
    page = benchmarks.page({"session": {"commit": "abc"}, "programs": {"drift": ended}})
    assert "- commit: abc\n" in page
    assert "| a | 2 s (1 .. 3, 3 rounds) | at most 1 | not met |\n| **failed**: no luck |" in page
    assert "2026-11-22, 61 s with `--runs 3`; others used 0.1 cores.\n" in page


def test_the_readme_has_every_program_and_marks_those_that_run_only_if_they_are_named():
    table = (REPOSITORY / "benchmarks/README.md").read_text()
    rows = re.findall(r"^\| `(\w+)`( \*)? \|", table, re.MULTILINE)
    assert rows == [(name, " *" if one.needs else "") for name, one in benchmarks.PROGRAMS.items()]
    others = {"__init__", "__main__", "measuring"}
    files = {path.stem for path in (REPOSITORY / "benchmarks").glob("*.py")}
    assert files - others == benchmarks.PROGRAMS.keys()
