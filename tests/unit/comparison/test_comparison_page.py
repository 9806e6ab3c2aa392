"""The page of a comparison: one file without scripts, and what it says of its campaigns."""

import dataclasses
from html.parser import HTMLParser

import pytest

from dlbench.comparison import comparison_page
from dlbench.comparison import plain as campaign_plain
from dlbench.pages import page_html, page_text
from support.comparisons.compared_campaigns import A_RATES, STEP, compared, rates
from support.runs.made_runs import measured


class Reader(HTMLParser):
    """Sees that tags are closed in their order, and what of them there is."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.addresses = [], set(), []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_one_file_without_scripts_whatever_the_names_are():
    found = compared(
        [measured(A_RATES, facts={"site": "<script>alert(1)</script>"})],
        [measured(rates(-4), facts={"site": "a|b *c* \"d\" & 'e'"})],
    )
    made = page_html.html_page(
        comparison_page.comparison_page(found, found.regressions(["slower"]))
    )
    reader = Reader()
    reader.feed(made)
    assert reader.open == []
    assert not {"script", "link", "img", "iframe"} & reader.tags
    assert reader.addresses == []
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in made
    assert "@import" not in made and "url(" not in made
    markdown = page_text.markdown(comparison_page.comparison_page(found))
    assert r"a\|b \*c\*" in markdown
    assert r"\<script\>" in markdown


@pytest.mark.parametrize("width", [80, 100, 120])
def test_text_is_as_wide_as_it_may_be(width):
    long = "x" * 30 + " y" * 40
    found = compared(
        [measured(A_RATES, strategy_options=long), measured(A_RATES, xla=True)],
        [measured(rates(1), strategy_options=long), measured(rates(1), precision="bfloat16")],
    )
    lines = page_text.text(comparison_page.comparison_page(found), width).splitlines()
    assert max(map(len, lines)) <= width


def test_what_one_side_has_only_is_named_with_how_the_nearest_differs():
    other = measured([1], batch_per_device=64, xla=True)
    found = compared([measured([1]), other], [measured([1])])
    *_, only = comparison_page.comparison_page(found).sections
    assert (only.heading, only.table.headings[2]) == ("Only in A (1)", "nearest in B differs in")
    ((name, runs, differs),) = only.table.rows
    assert (runs, differs) == ("1", "batch_per_device 64 / 8; xla true / false"), name


def test_columns_become_narrower_as_long_as_no_word_is_broken_then_words_are():
    table = [["name", "meaning"], ["x" * 20 + " y", "some words " * 8]]
    assert page_text._widths(table, 80) == [22, 56]
    assert page_text._widths(table, 40) == [20, 18]
    assert page_text._widths(table, 30) == [16, 12]


def test_campaigns_that_share_no_session_are_said_to_be_measured_apart_and_checked_all_the_same():
    def of(session, steps):
        runs = measured(rates(steps))
        return [dataclasses.replace(run, session=session) for run in runs]

    together, apart = (compared([of("s1", 0)], [of(name, -2)]) for name in ("s1", "s2"))
    for found in (together, apart):
        page = comparison_page.comparison_page(found)
        formats = [page_text.text(page), page_text.markdown(page), page_html.html_page(page)]
        assert [
            " ".join(text.split()).count("A and B were measured apart") for text in formats
        ] == ([0, 0, 0] if found is together else [1, 1, 1])
        assert campaign_plain.comparison_values(found)["measured_apart"] == (found is apart)
    assert [pair.verdict for pair in apart.pairs] == [pair.verdict for pair in together.pairs]
    assert len(apart.regressions(["slower"])) == len(together.regressions(["slower"]))
    unknown = compared([measured(A_RATES)], [measured(rates(1))])
    assert not unknown.measured_apart


def test_only_values_that_all_combinations_share_are_in_common():
    def both(rates):
        settings = {"precision": "float16", "clip_norm": 1.0}, {"clip_norm": 1.0}, {"steps": 60}
        return [measured(rates, **{"xla": True} | one) for one in settings]

    page = comparison_page.comparison_page(compared(both(A_RATES), both(rates(1))))
    assert page.sections[0].paragraphs[0] == "in common: XLA True"


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("steps", [-5, 0.0, 5])
def test_no_verdict_rests_on_a_run_that_others_disturbed(side, steps):
    def of(disturbed, steps):
        a, b = measured(rates(0)), measured([rate * STEP**steps for rate in (110, 110.01, 110.02)])
        both = [
            [
                dataclasses.replace(run, numbers={**run.numbers, "images_per_second": rate})
                for run, rate in zip(a, (110, 110.01, 110.02), strict=True)
            ],
            b,
        ]
        if disturbed:
            both[side][1] = dataclasses.replace(both[side][1], disturbed=True)
        return compared(both[:1], both[1:])

    quiet, loud = of(False, steps), of(True, steps)
    verdicts = {-5: "slower", 0.0: "equivalent", 5: "faster"}
    assert [pair.verdict for pair in quiet.pairs] == [verdicts[steps]]
    assert len(quiet.regressions(["slower"])) == (steps == -5)
    (pair,) = loud.pairs
    assert (pair.verdict, pair.is_different, loud.regressions(["slower"])) == (
        "undecided",
        False,
        [],
    )
    assert pair.compared == quiet.pairs[0].compared
    reason = f"other processes disturbed runs: 1 in {'AB'[side]}"
    assert reason in " ".join(page_text.text(comparison_page.comparison_page(loud), 200).split())
    (plain,) = campaign_plain.comparison_values(loud)["combinations"]
    assert plain["ab"[side]]["disturbed"] == 1 and plain["reason"] == reason
