"""Pages: what templates insert is escaped, a value that they lack is an error; texts wrap."""

import jinja2
import pytest
from markupsafe import Markup

from dlbench.pages import templates
from dlbench.pages.formats import Cell, Page, Section, Table, html_page, text

EVIL = "</style><script>alert(1)</script>\"' &"
PAGES = ("pages/page.html.jinja", "report/report.html.jinja")


@pytest.mark.parametrize("place", ["title", "lead", "kind", "heading", "words", "cell", "note"])
def test_a_text_never_becomes_markup_wherever_it_stands(place):
    texts = dict.fromkeys(("title", "lead", "kind", "heading", "words", "cell", "note"), "plain")
    texts[place] = EVIL
    cells = [texts["cell"], Cell(texts["cell"], texts["kind"], texts["note"])]
    table = Table((texts["heading"], "drawn"), [cells])
    sections = (Section(texts["heading"], (texts["words"],), table),)
    made = html_page(Page(texts["title"], texts["lead"], sections, texts["kind"]))
    assert "<script" not in made and str(Markup.escape(EVIL)) in made


@pytest.mark.parametrize("name", PAGES)
def test_a_template_without_its_values_is_an_error(name):
    with pytest.raises(jinja2.UndefinedError):
        templates.render(name)


def test_intervals_are_drawn_on_one_logarithmic_scale_and_those_without_ends_have_none():
    nan = float("nan")
    rows = [["one run", Cell("1.2", drawn=(1.2, nan, nan, 0.01))]]
    rows.append(["more", Cell("1.1", drawn=(1.1, 1.05, 1.15, 0.01))])
    made = html_page(Page("t", "l", (Section("s", (), Table(("a", "b"), rows)),)))
    assert made.count("<svg") == 2 and made.count('class="ci') == 1
    # 1 is at 72 of 144 pixels, and 1.25 log(1.15) are 66; 1.2 is beyond the end.
    for drawn in ('x="68.2" y="2" width="7.5"', 'x1="90.4" x2="124.8"', 'cx="108.0"', 'cx="138.0"'):
        assert drawn in made


def test_a_cell_of_a_text_wraps_at_spaces_and_keeps_names_with_hyphens_whole():
    """A name or an option can be copied from a terminal."""
    page = Page(
        "t", "l", (Section("s", (), Table(("a",), [["x" * 70 + " --batch-per-device 8"]])),)
    )
    assert text(page, 80).splitlines()[-2:] == ["x" * 70, "--batch-per-device 8"]
