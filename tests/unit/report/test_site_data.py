"""build_site: what the website shows of a history, and names of files that no text can break."""

import math
import re

import numpy as np
import pytest

from dlbench.history import dataset
from dlbench.report import build_site
from support.history import made_histories as made

A, B = made.fields(batch_per_device=8), made.fields(batch_per_device=16)
HOSTILE = ("../../etc/passwd", "a/b\\c", "CON", "\x00\n", "..", "", "ü" * 300, "<script>", "a.html")


@pytest.fixture
def history(tmp_path):
    return tmp_path / "history"


def drawn(level, seed):
    return (level * np.exp(np.random.default_rng(seed).normal(0, 0.003, 3))).tolist()


def test_the_level_is_that_of_the_sessions_since_the_last_change(history):
    for week in range(20):
        level, driver = ((1100, "540"), (1000, "550"), (900, "560"))[(week >= 7) + (week >= 14)]
        made.add(history, week, {A: drawn(level, week), B: drawn(level, week + 99)}, driver=driver)
    site = build_site.read(history, {})
    (machine,) = site.machines
    assert len(machine.findings) == 2 and len(machine.series) == 2
    for series in machine.series:
        assert [point.session.name for point in series.level_points] == [
            f"s{week}-EPYC" for week in range(14, 20)
        ]
        assert series.level.low < 900 < series.level.high
        assert len(series.findings) == 2 and len(series.points) == 20
    assert machine.facts == {"GPU driver": "560"}


def test_a_condition_that_lacks_the_session_of_a_shared_change_has_the_change_too(history):
    sizes = [made.fields(batch_per_device=n) for n in (8, 16, 32, 64, 128)]
    for week in range(14):
        level, driver = (1000, "550") if week < 8 else (900, "560")
        present = sizes if week != 8 else sizes[1:]
        rates = {fields: drawn(level, 9 * week + at) for at, fields in enumerate(present)}
        made.add(history, week, rates, driver=driver)
    (machine,) = build_site.read(history, {}).machines
    assert [row["session"] for row in machine.findings] == ["s8-EPYC"]
    assert machine.findings[0]["conditions"] == 5
    assert [len(series.level_points) for series in machine.series] == [5, 6, 6, 6, 6]


def test_the_level_of_one_session_has_the_interval_of_its_runs(history):
    made.add(history, 0, {A: [100, 110, 121]})
    (series,) = build_site.read(history, {}).machines[0].series
    assert series.level.value == pytest.approx(110) and series.level.runs == 3
    assert series.level.low < 110 < series.level.high
    ends = build_site.number(series.level.low), build_site.number(series.level.high)
    assert build_site.value_text(series.level, "items/s") == f"110 items/s ({ends[0]} to {ends[1]})"
    assert build_site.value_text(None) == build_site.NONE
    made.add(history / "other", 0, {A: [100.0], B: []})  # of B no run completed
    first, second = build_site.read(history / "other", {}).machines[0].series
    assert math.isnan(first.level.low) and first.measured
    assert second.level_points == [] and second.points[0].failed == 3


def test_conditions_are_told_apart_by_their_data_and_sorted_by_numbers_in_their_names(history):
    sizes = {made.fields(batch_per_device=n): [1.0] for n in (128, 16, 8)}
    made.add(history, 0, sizes, meaning='{"data":"aa"}')
    made.add(history, 1, {A: [200.0]}, meaning='{"data":"bb"}')
    conditions = build_site.read(history, {}).conditions
    found = [(one.fields["batch_per_device"], one.meaning["data"]) for one in conditions]
    assert found == [(8, "aa"), (8, "bb"), (16, "aa"), (128, "aa")]
    assert conditions[0].address != conditions[1].address


def test_equal_machines_of_two_sites_are_two_and_those_the_config_joins_are_one(history):
    keys = set()
    for site in ("north", "south"):
        for week, machine in enumerate(("EPYC", "Xeon")):
            made.add(history, week, {A: [1.0]}, machine=machine, site=site)
    keys = {one.id for one in build_site.read(history, {}).machines}
    site = build_site.read(history, {"ours": sorted(keys)})
    assert [one.label for one in site.machines] == ["ours at north", "ours at south"]
    assert [len(one.sessions) for one in site.machines] == [2, 2]


def test_sessions_that_do_not_count_are_left_out_and_listed(history):
    made.add(history, 0, {A: [1.0]})
    name = made.add(history, 1, {A: [2.0]}, study=None)
    (history / name).with_suffix(".withdrawn").write_text("wrong BIOS")
    site = build_site.read(history, {})
    assert [one.name for one in site.sessions] == ["s0-EPYC"]
    assert [(row["standing"], row["reason"]) for row in site.left_out] == [
        (dataset.WITHDRAWN, "wrong BIOS")
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_name_of_any_text_is_one_plain_file_name(text):
    name = build_site.file_name("machine", text, text)
    assert re.fullmatch(r"machine(-[a-z0-9]+)+\.html", name) and len(name) < 80


def test_texts_that_look_alike_have_different_names():
    texts = ("A 1", "a 1", "a-1", "a/1", "a  1")
    names = {build_site.file_name("study", text, text) for text in texts}
    assert len(names) == len(texts)


def test_a_name_does_not_depend_on_how_its_key_is_cut():
    assert build_site.anchor("a b", "c") != build_site.anchor("a", "b c")
