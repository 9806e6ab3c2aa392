"""The figure step_times: what it says of stalled steps."""

import re

from dlbench.drawing.figures import step_times
from support.results import drawn_figures, made_tables


def figure_texts(draw, **changes):
    rows = [row | changes for row in made_tables.study(repeats=2, strategy="single")]
    return drawn_figures.texts(draw("step_times", rows, steps_each=100).axes[0])


def test_the_share_that_stalled_steps_took_is_said_to_be_one_of_the_time(draw):
    shown = figure_texts(draw)
    (label,) = [text for text in shown if "stalled" in text and "line:" not in text]
    assert re.search(r"\d+ of \d+ steps stalled: [\d.]+ % of the time lost$", label)


def test_where_no_step_stalled_there_is_no_share():
    assert step_times._stalled(0, 1281, 0.0) == "none of 1\u2009281 steps stalled"
    assert step_times._stalled(10, 1281, 0.0104) == (
        "10 of 1\u2009281 steps stalled: 1.0 % of the time lost"
    )


def test_a_row_says_how_many_of_its_runs_are_unstable(draw):
    assert "2 of 2 unstable" in figure_texts(draw, status="unstable")
