"""Tables of made studies, and the figures that are drawn from them."""

import functools
import warnings

import pytest

from dlbench.common import plugins
from support.results import made_tables
from support.results.drawn_figures import saved_figures


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A function that returns the tables of a case, which it writes once."""

    @functools.cache
    def read(case):
        return made_tables.write(tmp_path_factory.mktemp("tables"), made_tables.CASES[case]())

    return read


@pytest.fixture(scope="session")
def drawn(made, tmp_path_factory):
    """A function that returns the axes of a figure of a case, which it draws once.

    A warning is an error.
    """
    folder = tmp_path_factory.mktemp("figures")

    @functools.lru_cache(200)
    def draw(name, case):
        tables = made(case)
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("error")
            figures = saved_figures(patch)
            plugins.load("figures", name).draw(tables, folder / name)
        (figure,) = figures
        return figure.axes

    return draw


@pytest.fixture
def draw(tmp_path, monkeypatch):
    """A function that draws a figure of some runs and returns it."""
    figures = saved_figures(monkeypatch)

    def draw(name, rows, steps_each=0):
        tables = made_tables.write(tmp_path, rows, steps_each)
        plugins.load("figures", name).draw(tables, tmp_path / name)
        return figures[-1]

    return draw


@pytest.fixture
def panels(draw):
    """A function that draws a figure of some runs and returns the axes that say what is along x."""
    return lambda name, rows: [axes for axes in draw(name, rows).axes if axes.get_xlabel()]
