"""Figures of a history."""

from pathlib import Path

import numpy as np
import pytest

from dlbench.history import analyse_history, draw_history
from support.history import made_histories as made

HISTORY = Path("history")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def draw():
    analyse_history.write(analyse_history.analyse(HISTORY, {}), Path("tables"))
    return [stem.with_suffix(".svg").read_text() for stem in draw_history.draw(*FOLDERS)]


FOLDERS = Path("tables"), Path("figures")


def add(week, factor=1.0, machine="EPYC", driver="550"):
    chance = np.random.default_rng(week)
    rates = {
        made.fields(model): list(level * factor * np.exp(chance.normal(0, 0.003, 3)))
        for model, level in (("resnet50", 1400), ("vit_b16", 880), ("lenet5", 9000))
    }
    made.add(HISTORY, week, rates, machine, driver)


@pytest.mark.ci
def test_a_change_has_its_number_its_size_and_its_cause_in_the_figure():
    for week in range(12):
        add(week, *((0.95, "EPYC", "560") if week >= 6 else ()))
    (svg,) = draw()
    assert svg.count("<!-- 1: \u22125.") + svg.count("<!-- 1: \u22124.") == 3
    assert "1  2026-02-16, loss of \u2212" in svg and "3 of 3 conditions" in svg
    assert "Changed then, likeliest first: GPU driver 550 \u2192 560." in svg
    assert {path.suffix for path in Path("figures").iterdir()} == {".svg", ".png", ".pdf"}


@pytest.mark.ci
def test_each_machine_has_a_figure_also_of_one_session():
    for week in range(3):
        add(week)
    add(3, machine="Xeon")
    one, other = draw()
    assert "No change of level was found." in one and "3 sessions." in one
    assert "1 session." in other and "Xeon" in other


def test_a_history_without_a_session_says_so():
    assert draw() == []
    assert "the history has no session" in Path("figures/empty.svg").read_text()


def test_more_conditions_than_have_room_are_counted(monkeypatch):
    monkeypatch.setattr(draw_history, "MAX_PANELS", 2)
    add(1)
    (svg,) = draw()
    assert "1 further condition not drawn." in svg
