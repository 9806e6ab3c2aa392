"""docs/figures.md: every figure is pictured, as its code draws it today."""

import numpy as np
import pytest
from PIL import Image

from dlbench.common import plugins
from dlbench.drawing import styles
from support.machines.paths import REPOSITORY
from support.project import page_figures

NAMES = plugins.names("figures")


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), float)


def test_the_page_shows_every_figure():
    page = (REPOSITORY / "docs/figures.md").read_text()
    for name in NAMES:
        assert f"| `{name}` | " in page and f"![](figures/{name}.png) |" in page, name


@pytest.mark.ci
@pytest.mark.one_in(12)
@pytest.mark.parametrize("name", [name for name in NAMES if name != page_figures.MEASURED])
def test_a_picture_is_what_its_figure_draws(name, tmp_path, monkeypatch):
    monkeypatch.setattr(styles, "FORMATS", ("png",))
    monkeypatch.setitem(styles.STYLE, "savefig.dpi", page_figures.POINTS)
    page_figures.draw(name, tmp_path)
    drawn, shown = pixels(tmp_path / f"{name}.png"), pixels(page_figures.PAGES / f"{name}.png")
    again = f"run: uv run python tests/support/project/page_figures.py {name}"
    # Of 255: another version of Matplotlib's smoothing is less, and one moved point is more.
    assert drawn.shape == shown.shape and np.abs(drawn - shown).mean() < 0.1, again
