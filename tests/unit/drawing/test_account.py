"""The bars of where the wall time went."""

import functools

import pytest

from support.results import made_tables


@pytest.fixture
def drawn(draw):
    return functools.partial(draw, "account")


def bars(figure):
    """{height: widths of its parts}."""
    found = {}
    for bar in figure.axes[0].patches:
        found.setdefault(round(bar.get_y(), 3), []).append(bar.get_width())
    return found


def test_the_parts_of_each_bar_are_the_whole_of_its_time(drawn):
    found = bars(drawn(made_tables.learning(devices=[1, 4], repeats=2)))
    assert len(found) == 2
    assert [sum(widths) for widths in found.values()] == pytest.approx([100, 100])


def test_the_blue_parts_of_a_bar_are_its_goodput(drawn):
    row = made_tables.study(repeats=1)[0]
    (widths,) = bars(drawn([row])).values()
    assert sum(widths[:2]) == pytest.approx(100 * row["goodput"])
    texts = [text.get_text() for text in drawn([row]).axes[0].texts]
    assert any(f"goodput {100 * row['goodput']:.0f} %" in text for text in texts)


def test_only_what_took_time_is_in_the_legend(drawn):
    (legend,) = drawn(made_tables.study(repeats=1)).legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names[:3] == ["steps", "warm-up", "compiling"]
    assert "lost by restarts" not in names


def test_runs_whose_time_is_not_known_are_left_out_with_a_note(drawn):
    rows = made_tables.study(repeats=1)
    for row in rows:
        del row["wall_s"], row["goodput"]
    texts = [text.get_text() for text in drawn(rows).findobj(lambda a: hasattr(a, "get_text"))]
    assert any("of no run is known where its wall time went" in text for text in texts)
