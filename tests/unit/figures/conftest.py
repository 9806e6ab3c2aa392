"""Tables of made studies, and the figures that are drawn from them."""

import pytest

from dlbench.common import plugins
from support.results import made_tables
from support.results.drawn_figures import saved_figures


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tables of a case, written once."""
    written = {}

    def read(case):
        if case not in written:
            folder = tmp_path_factory.mktemp("tables")
            written[case] = made_tables.write(folder, made_tables.CASES[case]())
        return written[case]

    return read


@pytest.fixture
def drawn(made, tmp_path, monkeypatch):
    """A function that draws a figure of a case and returns its axes."""
    figures = saved_figures(monkeypatch)

    def draw(name, case):
        plugins.load("figures", name).draw(made(case), tmp_path / name)
        return figures[-1].axes

    return draw


@pytest.fixture
def panels(tmp_path, monkeypatch):
    """A function that draws a figure of some runs and returns the axes that say what is along x."""
    figures = saved_figures(monkeypatch)

    def draw(name, rows):
        tables = made_tables.write(tmp_path, rows, steps_each=0)
        plugins.load("figures", name).draw(tables, tmp_path / name)
        return [axes for axes in figures[-1].axes if axes.get_xlabel()]

    return draw
