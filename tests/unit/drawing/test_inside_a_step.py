"""The bars of what a step is made of."""

import pytest

from support.results import made_explanations, made_tables
from support.results.drawn_figures import texts

OWN = made_explanations.runs(50.0, **made_explanations.TWO)
PARTS = {"input": 5.0, "exchange": 10.0, "sharing": 1.0, "waits": -1.0, "computation": 35.0}


@pytest.fixture
def drawn(draw, tmp_path):
    """A function that draws the figure of one condition and returns the figure."""

    def drawn(explained, runs=OWN):
        made_explanations.write(tmp_path, explained)
        return draw("inside_a_step", runs)

    return drawn


def explained(**changes):
    return made_explanations.rows(OWN[0]["run_id"], PARTS, **changes)


def widths(figure):
    return [bar.get_width() for bar in figure.axes[0].patches]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_resolved_parts_are_drawn_as_shares_and_the_rest_as_not_resolved(drawn):
    figure = drawn(explained(halves_ms={"sharing": 3.0}))
    assert widths(figure) == pytest.approx([70, 20, 10])
    assert legend(figure) == ["computation", "exposed exchange of gradients", "waiting for input"]
    figure = drawn(explained(halves_ms={"input": 7.0}))
    assert widths(figure) == pytest.approx([70, 2, 20, 8])
    assert legend(figure)[-1] == "not resolved"
    assert texts(figure.axes[0])[:2] == ["50 ms", "3 probes each"]


def test_a_line_at_the_end_of_a_part_is_its_interval(drawn):
    figure = drawn(explained(halves_ms={"exchange": 2.0, "sharing": 3.0}))
    ends = [tuple(line.get_xdata()) for line in figure.axes[0].lines]
    assert ends[1] == pytest.approx((90 - 4, 90 + 4))  # after 70 of computation and 20
    assert len(ends) == 3


def test_a_failed_run_is_drawn_by_its_probes(drawn):
    failed = made_tables.failing(OWN, lambda row: True)
    assert len(widths(drawn(explained(), failed))) == 4


def test_without_probes_the_figure_says_what_asks_for_them(drawn):
    unknown = made_explanations.rows(OWN[0]["run_id"], dict.fromkeys(PARTS))
    for found in ([], unknown):
        assert "explain: true" in texts(drawn(found).axes[0])[0]
