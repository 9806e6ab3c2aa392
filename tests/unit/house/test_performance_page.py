"""The figures of tests/performance: targets, merging of results, and the page made from them."""

import json
import sys
from pathlib import Path

import pytest
from tests.performance import bench
from tests.performance.bench import page
from tests.performance.bench.figure import Figure
from tests.performance.bench.programs import PROGRAMS
from tests.performance.training import model_work

FIRST, SECOND = "2026-11-22T10:00:00Z", "2026-11-23T10:00:00Z"


def session(commit, changed=False):
    machine = {"cpu": "Model X", "cores": 2, "memory_gib": 8, "kernel": "6.1", "os": "Debian"}
    versions = {"workflow": {"Python": "3.11.7", "snakemake": "9.27.1"}}
    return {"commit": commit, "changed": changed, "machine": machine, "versions": versions}


def program(session, *figures, error="", others=0.01):
    return {
        "session": session, "date": session, "arguments": "", "seconds": 61.4, "cores": 2,
        "load_before_1min": 0.3, "others_cpu_cores": others, "error": error,
        "figures": [figure._asdict() for figure in figures],
    }  # fmt: skip


def results(**programs):
    found = {date: session(date[:10]) for date in (FIRST, SECOND)}
    used = {one["session"] for one in programs.values()}
    return {"sessions": {date: found[date] for date in used}, "programs": programs}


def rows(text, name):
    """The rows of a program's table, without the header."""
    section = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


@pytest.mark.parametrize(
    ("values", "bounds", "verdict"),
    [
        ((0.9, 1.0, 1.1), {"at_least": 1}, "met"),
        ((0.9, 0.99, 1.1), {"at_least": 1}, "not met"),
        ((0.9, 1.3, 1.4), {"at_most": 1.3}, "met"),
        ((0.9, 1.31, 1.4), {"at_most": 1.3}, "not met"),
        ((0.5,), {"at_least": 0.4, "at_most": 0.6}, "met"),
        ((0.7,), {"at_least": 0.4, "at_most": 0.6}, "not met"),
        ((float("nan"),), {"at_most": 1}, "not met"),
        ((0.7,), {}, ""),
    ],
)
def test_a_target_is_met_or_not_by_the_median_of_all_rounds(values, bounds, verdict):
    assert Figure("speed", values, **bounds).verdict == verdict


def test_a_figure_says_its_spread_and_of_how_many_rounds_it_is():
    figure = Figure("memory", (350.2, 341.5, 361.0), "MB", at_most=360)
    assert str(figure) == ("memory: 350.2 MB (341.5 .. 361, 3 rounds); target at most 360: met")
    assert Figure("memory", (350.2,), "MB").measured == "350.2 MB (1 round)"


def test_rounds_run_all_calls_and_every_second_one_backwards():
    order = []
    calls = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}
    assert bench.in_turns(3, calls) == {"a": [1, 4, 5], "b": [2, 3, 6]}
    assert order == list("abbaab")


def test_a_command_that_fails_ends_the_program_with_what_it_printed():
    with pytest.raises(SystemExit, match="no luck"):
        bench.run([sys.executable, "-c", "print('no luck'); raise SystemExit(3)"])


def test_the_time_and_memory_of_a_command_are_those_of_its_process():
    code = "data = b'x' * 200_000_000; print(sum(range(2_000_000)))"
    used = bench.run([sys.executable, "-c", code])
    assert 200 < used.peak_mb < 300
    assert 0 < used.cpu_s <= 2 * used.wall_s
    assert used.output == "1999999000000\n"


def test_a_figure_that_is_added_is_printed_and_kept_wherever_a_program_goes(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    figures = bench.Figures(Path("kept"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    figures.add("one", 1.23456789, "s", at_most=2)
    figures.add("two", [1, 2])
    kept = [Figure(**json.loads(line)) for line in (tmp_path / "kept").read_text().split("\n")[:-1]]
    assert [one.values for one in kept] == [[1.23457], [1.0, 2.0]]
    assert capsys.readouterr().out.splitlines() == [str(one) for one in kept]


def test_measuring_a_program_again_replaces_its_figures_alone():
    old = results(
        drift=program(FIRST, Figure("a", (1.0,)), Figure("b", (1.0,))),
        planning=program(FIRST, Figure("c", (1.0,))),
    )
    new = results(drift=program(SECOND, Figure("a", (2.0,))))
    both = page.merged(old, new)
    assert both["programs"] == {"drift": new["programs"]["drift"],
                                "planning": old["programs"]["planning"]}  # fmt: skip
    assert list(both["sessions"]) == [FIRST, SECOND]
    assert list(page.merged(both, results(planning=program(SECOND)))["sessions"]) == [SECOND]


def test_a_program_that_is_no_more_leaves_the_page():
    assert page.merged(results(gone=program(FIRST)), results())["programs"] == {}


def test_a_row_has_figure_spread_target_and_verdict():
    text = page.page(
        results(
            drift=program(
                FIRST, Figure("a", (1.0, 3.0, 2.0), "s"), Figure("b", (0.5,), at_least=0.4)
            )
        )
    )
    assert rows(text, "drift") == [
        "| a | 2 s (1 .. 3, 3 rounds) |  |  |",
        "| b | 0.500 (1 round) | at least 0.4 | met |",
    ]
    assert "1 of 1 targets are met.\n" in text


def test_a_target_that_is_missed_is_shown_in_its_row_and_at_the_top():
    text = page.page(results(drift=program(FIRST, Figure("a", (1.5,), at_most=1.3))))
    assert "| **not met** |" in rows(text, "drift")[0]
    assert "0 of 1 targets are met. Not met:\n\n- [drift](#drift): a" in text


def test_a_program_that_failed_keeps_the_figures_before_and_says_why():
    failed = program(FIRST, Figure("a", (1.0,)), error="no | Chromium\nhere")
    first, second = rows(page.page(results(drift=failed)), "drift")
    assert first.startswith("| a | 1 ")
    assert "**failed**: no \\| Chromium here" in second


def test_every_program_that_was_not_run_says_what_it_needs_and_how_it_is_run():
    text = page.page(results())
    for name, one in PROGRAMS.items():
        (row,) = rows(text, name)
        assert row.startswith("| not run")
        assert f"`uv run python -m tests.performance {name}" in row
        assert one.needs in row and one.given in row


@pytest.mark.parametrize(
    ("others", "quiet"), [(0.0, True), (0.1, True), (0.2, False), (None, False)]
)
def test_a_machine_that_was_not_quiet_is_said_to_be_so(others, quiet):
    text = page.page(results(drift=program(FIRST, Figure("a", (1.0,)), others=others)))
    assert ("**Not quiet**" not in text) == quiet


def test_the_page_names_machine_versions_and_commit_of_each_session():
    found = results(drift=program(FIRST, Figure("a", (1.0,))))
    found["sessions"][FIRST] = session("0123456789abcdef", changed=True)
    text = page.page(found)
    assert "commit 0123456789ab, with changes that are not committed" in text
    assert "2 cores of Model X, 8 GiB, Debian, Linux 6.1" in text
    assert "snakemake 9.27.1" in text


def test_the_page_is_the_one_made_from_the_figures_that_are_kept():
    assert page.PAGE.read_text() == page.page(page.read(page.FILE)), (
        "run: uv run python -m tests.performance --page"
    )


def test_what_is_to_be_known_of_figures_stands_below_them():
    for one in (results(), results(planning=program(FIRST, Figure("a", (1.0,))))):
        section = page.page(one).partition("\n## planning\n")[2].partition("\n## ")[0]
        assert (PROGRAMS["planning"].note in section) == bool(one["programs"])


def test_spreads_of_calibrations_which_the_machine_decides_are_shown_and_not_judged(tmp_path):
    rounds = [{"spent_s": 15.0, "tflops": 0.1, "gb_per_s": rate} for rate in (50.0, 76.0)]
    kept = tmp_path / "kept"
    model_work.add_calibrations(bench.Figures(kept), "jax", 2, rounds)
    found = {one.name: one for one in (Figure(**json.loads(s)) for s in kept.open())}
    spread = found["jax: copy in memory on 2 cores, spread over calibrations"]
    assert spread.measured == "52 % (1 round)" and not spread.target
    assert found["jax: calibration on 2 cores"].target  # what dlbench decides is judged
    text = page.page(results(model_work=program(FIRST, *found.values())))
    assert "1 of 1 targets are met." in text
    assert "Spreads over calibrations have no target:" in text
