"""The page of a comparison: one file without scripts, and what it says of its campaigns."""

import dataclasses
import re

import pytest

from dlbench.analysis import compare_runs, comparison_page
from dlbench.pages import formats
from support.comparisons.compared_campaigns import A_RATES, STEP, compared, rates
from support.runs.made_runs import measured


def test_the_page_is_one_file_without_scripts_whatever_the_names_are():
    found = compared(
        [measured(A_RATES, facts={"site": "<script>alert(1)</script>"})],
        [measured(rates(-4), facts={"site": "a|b *c* \"d\" & 'e'"})],
    )
    made = formats.html_page(comparison_page.comparison_page(found, found.regressions(["slower"])))
    assert not re.search(r"<(script|link|img|iframe)| (src|href)=", made)
    for tag in set(re.findall(r"</(\w+)>", made)):
        assert len(re.findall(rf"<{tag}\b", made)) == made.count(f"</{tag}>"), tag
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in made
    assert "@import" not in made and "url(" not in made
    markdown = formats.markdown(comparison_page.comparison_page(found))
    assert r"a\|b \*c\*" in markdown
    assert r"\<script\>" in markdown
    assert "| combination | A | B | B / A | 95 % interval | verdict |\n| --- | ---: |" in markdown


def test_campaigns_that_share_no_session_are_said_to_be_measured_apart_and_checked_all_the_same():
    def of(session, steps):
        runs = measured(rates(steps))
        return [dataclasses.replace(run, session=session) for run in runs]

    together, apart = (compared([of("s1", 0)], [of(name, -2)]) for name in ("s1", "s2"))
    for found in (together, apart):
        page = comparison_page.comparison_page(found)
        forms = [formats.written(page, {}, form) for form in ("text", "markdown", "html")]
        assert [" ".join(text.split()).count("A and B were measured apart") for text in forms] == (
            [0, 0, 0] if found is together else [1, 1, 1]
        )
        assert compare_runs.values(found)["measured_apart"] == (found is apart)
    assert [pair.verdict for pair in apart.pairs] == [pair.verdict for pair in together.pairs]
    assert len(apart.regressions(["slower"])) == len(together.regressions(["slower"]))
    unknown = compared([measured(A_RATES)], [measured(rates(1))])
    assert not unknown.measured_apart


def test_only_values_that_all_combinations_share_are_in_common():
    def both(rates):
        settings = {"precision": "float16", "clip_norm": 1.0}, {"clip_norm": 1.0}, {"steps": 60}
        return [measured(rates, **{"xla": True} | one) for one in settings]

    page = comparison_page.comparison_page(compared(both(A_RATES), both(rates(1))))
    assert page.sections[0].paragraphs[0] == "in common: XLA"


def test_text_is_as_wide_as_it_may_be_and_words_are_broken_where_they_do_not_fit():
    long = "x" * 30 + " y" * 40
    found = compared(
        [measured(A_RATES, strategy_options=long), measured(A_RATES, xla=True)],
        [measured(rates(1), strategy_options=long), measured(rates(1), precision="bfloat16")],
    )
    for width in (80, 100, 120):
        lines = formats.text(comparison_page.comparison_page(found), width).splitlines()
        assert max(map(len, lines)) <= width
    table = [["name", "meaning"], ["x" * 20 + " y", "some words " * 8]]
    widths = {width: formats._widths(table, width) for width in (80, 40, 30)}
    assert widths == {80: [22, 56], 40: [20, 18], 30: [16, 12]}


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("steps", "verdict"), [(-5, "slower"), (0.0, "equivalent"), (5, "faster")])
def test_no_verdict_rests_on_a_run_that_others_disturbed(side, steps, verdict):
    tight = 110, 110.01, 110.02
    sides = [measured(tight), measured([rate * STEP**steps for rate in tight])]
    quiet = compared(sides[:1], sides[1:])
    assert [pair.verdict for pair in quiet.pairs] == [verdict]
    assert len(quiet.regressions(["slower"])) == (steps == -5)
    sides[side][1] = dataclasses.replace(sides[side][1], disturbed=True)
    loud = compared(sides[:1], sides[1:])
    (pair,) = loud.pairs
    assert (pair.verdict, pair.is_different) == ("undecided", False)
    assert loud.regressions(["slower"]) == []
    assert pair.compared == quiet.pairs[0].compared
    reason = f"other processes disturbed runs: 1 in {'AB'[side]}"
    assert reason in " ".join(formats.text(comparison_page.comparison_page(loud), 200).split())
    (plain,) = compare_runs.values(loud)["combinations"]
    assert plain["ab"[side]]["disturbed"] == 1 and plain["reason"] == reason
