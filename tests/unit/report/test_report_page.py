"""The report in a real browser: sorting, filtering, no complaint, no request, on a phone too."""

import pytest

from support.results import chromium, made_tables

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not chromium.installed(), reason="there is no Chromium here"),
]
EVIL = "<img src=http://example.invalid/x onerror=document.title='broken'>"
ROWS = 300
# What a test sees of a table: the texts of a column, and how many rows there are.
TEXTS = """
const place = document.querySelector('#table-{table}');
const heads = [...place.querySelectorAll('thead tr:first-child th')];
const of = heads.findIndex((th) => th.textContent.startsWith('{column}'));
return [...place.querySelectorAll('tbody tr')].map((tr) => tr.cells[of]?.textContent);
"""
HEADING = """
const all = [...document.querySelectorAll('#table-{table} thead th button')];
const button = all.find((b) => b.textContent.startsWith('{column}'));
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A report of 300 runs with figures, failures and a hostile name."""
    folder = tmp_path_factory.mktemp("report")
    rows = made_tables.study(
        devices=[1, 2, 4, 8],
        batch_per_device=[16, 32, 64, 128, 256],
        precision=["float32", "float16"],
        repeats=7,
    )
    rows = made_tables.failing(rows, lambda row: row["batch_per_device"] == 256)
    rows += made_tables.study(devices=1, runtime=[EVIL, "apptainer"], repeats=10)
    shown = made_tables.write(folder, rows, steps_each=0)
    assert len(rows) == ROWS
    broken = {"run_id": "x", "combination": EVIL, "status": "failed", "reason": EVIL}
    return made_tables.write_report(folder, shown, [broken, *made_tables.plain(shown.coverage)])


@pytest.fixture(scope="module")
def open_page():
    with chromium.browser() as opened:
        yield opened


@pytest.fixture
def page(open_page, path):
    return open_page(path)


def texts(page, column, table="runs"):
    return page.run(TEXTS.format(table=table, column=column))


def press_heading(page, column, table="runs"):
    page.run(HEADING.format(table=table, column=column) + "button.click();")


def count(page, table="runs"):
    return page.run(f"return document.querySelector('#table-{table} output').textContent")


def numbers(found):
    return [float(text.replace("\u202f", "")) for text in found if text != "\u2013"]


def search(page, text, table="runs"):
    page.run(
        f"const input = document.querySelector('#table-{table} .tools input');"
        f"input.value = {text!r}; input.dispatchEvent(new Event('input'));"
    )


def filter_column(page, column, value, table="runs"):
    """As a user: open the filters, then choose or write."""
    page.run(f"""
    const by = document.querySelector('#table-{table} .tools button');
    if (by.getAttribute('aria-expanded') !== 'true') by.click();
    const input = document.querySelector("#table-{table} [aria-label='Filter {column}']");
    input.value = {value!r}; input.dispatchEvent(new Event('input'));""")


def test_nothing_is_complained_about_and_nothing_asked_for(page, path):
    assert page.complaints == []
    assert page.requests == [path.as_uri()]


def test_the_policy_stops_a_script_that_gets_in_all_the_same(page):
    page.run("""
    const script = document.createElement('script');
    script.textContent = "document.title = 'broken'";
    document.body.append(script);""")
    assert page.run("return document.title") == "made: report"
    with pytest.raises(AssertionError, match="Failed to fetch"):
        page.run("await fetch('http://127.0.0.1:9/')")


def test_a_heading_sorts_numbers_up_then_down_then_as_it_was(page):
    before = texts(page, "images per second")
    press_heading(page, "images per second")
    up = numbers(texts(page, "images per second"))
    assert up == sorted(up) and len(up) > 10
    state = HEADING.format(table="runs", column="images per second")
    state += "return button.parentElement.getAttribute('aria-sort')"
    assert page.run(state) == "ascending"
    press_heading(page, "images per second")
    down = numbers(texts(page, "images per second"))
    assert down == sorted(down, reverse=True) and down[0] > up[-1]
    assert page.run(state) == "descending"
    press_heading(page, "images per second")
    assert texts(page, "images per second") == before
    assert page.run(state) is None
    # The keyboard does it, too.
    page.run(HEADING.format(table="runs", column="images per second") + "button.focus();")
    page.press("Enter", "\r")
    assert numbers(texts(page, "images per second")) == up
    page.press("Tab")
    assert page.run("return document.activeElement.textContent").startswith("step time median")
    # Names sort by the numbers in them.
    press_heading(page, "combination", "results")
    names = [name for name in texts(page, "combination", "results") if "bare" in name]
    batches = [int(name.split("batch ")[1].split(",")[0]) for name in names if "batch" in name]
    assert batches == sorted(batches) and len(set(batches)) == 5


def test_rows_without_a_value_come_last_either_way(page):
    filter_column(page, "batch per device", ">= 128")
    for _ in range(2):
        press_heading(page, "images per second")
        assert texts(page, "images per second")[0] != "\u2013"


def test_text_filters_rows_by_all_of_its_words_and_counts_them(page):
    assert count(page) == "300 rows"
    search(page, "FLOAT16 oom")
    assert count(page) == "28 of 300 rows"
    assert set(texts(page, "status")) == {"oom"}
    search(page, "no such thing")
    assert count(page) == "0 of 300 rows"
    assert texts(page, "run id") == ["No row is like that."]
    search(page, "")
    assert count(page) == "300 rows"


def test_columns_are_filtered_by_a_choice_a_bound_or_a_range_and_all_of_them_together(page):
    for column, value, expected in (
        ("status", "oom", 56), ("status", "", 300), ("batch per device", "> 64", 112),
        ("batch per device", "16..32", 112), ("batch per device", "= 32", 56),
        ("batch per device", "32", 56), ("run id", "made-", 56), ("precision", "float16", 28),
    ):  # fmt: skip
        filter_column(page, column, value)
        shown = "300 rows" if expected == 300 else f"{expected} of 300 rows"
        assert count(page) == shown, (column, value)
    page.run("document.querySelector('#table-runs .tools button').click();")
    assert count(page) == "300 rows"  # once they are closed


def test_columns_are_added_and_taken_away_and_headings_say_what_they_mean(page):
    heading = HEADING.format(table="runs", column="images per second")
    meaning = "items of the measured steps over their time on the slowest rank"
    expected = ["images per seconditems/s", meaning]
    assert page.run(heading + "return [button.textContent, button.title]") == expected
    tick = """
    const labels = [...document.querySelectorAll('#table-runs .choices label')];
    labels.find((l) => l.textContent.trim() === '{name}').firstChild.click();
    return [...document.querySelectorAll('#table-runs thead th')].map((t) => t.textContent);"""
    assert any(t.startswith("duration") for t in page.run(tick.format(name="precision")))
    assert not any(t.startswith("duration") for t in page.run(tick.format(name="duration")))
    assert any(t.startswith("devices per") for t in page.run(tick.format(name="devices per node")))


@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_only_tables_and_figures_scroll_sideways_and_names_can_be_read(
    open_page, path, dark
):
    page = open_page(path, width=360, height=740, phone=True, dark=dark)
    assert page.run("return document.documentElement.scrollWidth") == 360
    inner, outer = page.run(
        "const f = document.querySelector('#table-runs .frame');"
        "return [f.scrollWidth, f.clientWidth]"
    )
    assert inner > outer and page.complaints == []
    page = open_page(path, width=400, height=740, phone=True, dark=dark)
    widths = page.run(
        "const first = '.data tbody td:first-child, .groups td:first-child';"
        "return [...document.querySelectorAll(first)].map("
        "cell => cell.getBoundingClientRect().width).filter(width => width > 0)"
    )
    assert widths and min(widths) >= 9 * 16


def test_it_prints(page):
    content = page.pdf()
    assert content.startswith(b"%PDF") and content.count(b"/Type /Page\n") > 3
    assert "Printed: the first 60 of 300 rows" in page.run(
        "return document.querySelector('#table-runs .paper-only').textContent"
    )


def test_rows_are_drawn_as_they_are_scrolled_to(page):
    drawn = "return document.querySelectorAll('#table-runs tbody tr').length"
    assert page.run(drawn) == 60
    page.run("""
    const frame = document.querySelector('#table-runs .frame');
    frame.scrollTop = frame.scrollHeight;
    await new Promise((done) => setTimeout(done, 300));""")
    assert page.run(drawn) >= 120


def test_dark_mode_is_dark_and_legible(open_page, path):
    """Contrast of text with what is behind it, as WCAG 2.2 defines it; 4.5 is its level AA."""
    for dark in (False, True):
        page = open_page(path, dark=dark)
        for selector in ("body", "p.note", ".badge.good", ".badge.bad", "nav a", "td", "dt"):
            assert contrast(page, selector) >= 4.5, (selector, dark)
    colour = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    assert sum(page.run(colour)) < 150


def contrast(page, selector):
    ink, paper = page.run(f"""
    let element = document.querySelector('{selector}');
    const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
    const ink = rgb(getComputedStyle(element).color);
    let paper = rgb(getComputedStyle(element).backgroundColor);
    while (paper[3] === 0) {{
      element = element.parentElement;
      paper = rgb(getComputedStyle(element).backgroundColor);
    }}
    return [ink, paper]""")
    lighter, darker = sorted(map(luminance, (ink, paper)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour):
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (value / 255 for value in colour[:3])
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
