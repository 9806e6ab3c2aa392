"""Pages of a study whose texts are all scripts, in a real browser: texts are shown, none runs."""

import functools
import json
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from dlbench.analysis import compare_runs
from dlbench.pages import formats
from dlbench.tables import parquet_files, table_columns
from support.results import chromium, made_tables
from support.runs.made_runs import campaign, measured

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not chromium.installed(), reason="there is no Chromium here"),
]
EVILS = (
    "</script><script>document.title='broken'</script>",
    "<img src=x onerror=\"document.title='broken'\">",
    "'\"><svg onload=document.title='broken'>",
    "</style></title></code></textarea><iframe srcdoc='<script>top.document.title=1</script>'>",
    "$\\frac{x$ $(touch x) $",
    "javascript:document.title='broken'",
    "{{7*7}} ${7*7} $(x) \\u003cscript\\u003e \u2028 \x7f &lt;b&gt; ``<b>`` *<i>*",
)
# Those that say what kind of number a row has; a hostile one is another study.
NOT_TEXTS = (
    "run_id", "status", "timing_source", "mode", "precision", "device_kind", "learning_gate",
)  # fmt: skip


@pytest.fixture(scope="module")
def open_page():
    with chromium.browser() as opened:
        yield opened


def texts(schema):
    fields = ((f.name, f.type) for f in schema)
    plain = ((n, t.value_type if pa.types.is_dictionary(t) else t) for n, t in fields)
    return [name for name, kind in plain if pa.types.is_string(kind) and name not in NOT_TEXTS]


def hostile(rows, schema, evil, same=()):
    """The rows with hostile texts; texts of columns that are not in `same` end with the name."""
    names = texts(schema)
    return [row | {n: evil if n in same else f"{evil}{n}" for n in names} for row in rows]


def report_page(folder, evil):
    rows = made_tables.study(devices=[1, 2, 4], repeats=3)
    rows = made_tables.failing(rows, lambda row: row["repeat"] == 3)
    rows = hostile(rows, table_columns.RUNS, evil, same=("study",))
    shown = made_tables.write(folder, rows, steps_each=0)
    broken = {"run_id": evil, "combination": evil, "status": "failed", "reason": evil}
    combination = json.dumps({"model": evil})
    left_out = broken | {"run_id": None, "status": "excluded", "combination": combination}
    coverage = [broken, left_out]
    coverage += [row | {"reason": evil} for row in made_tables.plain(shown.coverage)]
    for name in ("comparisons", "speedups"):
        schema = getattr(table_columns, name.upper())
        found = parquet_files.read(folder / f"{name}.parquet", schema).to_pylist()
        parquet_files.write(folder / f"{name}.parquet", hostile(found, schema, evil), schema)
    return made_tables.write_report(folder, shown, coverage)


def page_content(page):
    """(title, number of elements that hostile texts would create, text of the page)."""
    return page.run("""
    for (const details of document.querySelectorAll('details')) details.open = true;
    await new Promise((done) => setTimeout(done, 100));
    const made = document.querySelectorAll('iframe, img[src="x"], svg[onload], [onerror]');
    return [document.title, made.length, document.body.innerText];""")


@pytest.fixture(scope="module")
def report_of(tmp_path_factory):
    """A function that returns the report with a hostile text; each is written once."""
    return functools.cache(lambda evil: report_page(tmp_path_factory.mktemp("report"), evil))


@pytest.mark.parametrize("evil", EVILS)
def test_a_report_of_hostile_texts_shows_them_and_runs_none(open_page, evil, report_of):
    path = report_of(evil)
    page = open_page(path)
    title, elements, text = page_content(page)
    assert title.endswith(": report") and elements == 0
    assert page.complaints == []
    assert page.requests == [path.as_uri()]
    assert " ".join(evil.split()) in " ".join(text.split())


@pytest.mark.parametrize("evil", EVILS)
def test_a_figure_of_hostile_names_runs_no_script(open_page, evil, report_of):
    for path in sorted((report_of(evil).parent / "figures").glob("*.svg")):
        for element in ElementTree.parse(path).iter():
            assert not element.tag.lower().endswith(("script", "iframe", "foreignobject"))
            assert not any(name.lower().startswith("on") for name in element.attrib)
        page = open_page(path)
        assert page.requests == [path.as_uri()]
        assert page.run("return document.title") != "broken"


@pytest.mark.parametrize("evil", EVILS)
def test_a_comparison_of_hostile_names_shows_them_and_runs_none(open_page, evil, tmp_path):
    one, other = (
        campaign(
            measured(rates, facts={"site": f"{evil}{rates[0]}"}, model=evil, dataset=evil),
            measured([None], status="failed", model=f"{evil}2"),
        )
        for rates in ((100, 110, 121), (200, 210, 221))
    )
    found = compare_runs.compare(one, other)
    path = tmp_path / "page.html"
    made = formats.html_page(compare_runs.comparison_page(found, found.regressions(["slower"])))
    path.write_text(made, encoding="utf-8")
    page = open_page(path)
    title, elements, text = page_content(page)
    assert title != "broken" and elements == 0
    assert page.requests == [path.as_uri()] and page.complaints == []
    assert " ".join(evil.split()) in " ".join(text.split())
