"""What limits each series: sentences are true of made data, and absent where those carry none."""

import re

from dlbench.analysis import limits
from dlbench.report import build_report
from dlbench.report import sentences as report_sentences
from support.results import made_baselines, made_explanations, made_reports
from support.results.made_explanations import TWO, baseline, runs

# A step of 40 ms on one device takes 50 ms on two: the efficiency is 0.8.
PARTS = {"input": 6.0, "exchange": 7.0, "sharing": 0.1, "waits": 1.0, "computation": 35.9}
OF_BASE = {"input": 4.0, "waits": 1.0, "computation": 35.0}
BASE, OWN = runs(40.0), runs(50.0, scatter=0.01, **TWO)
UNRESOLVED = "not resolved: its interval includes zero"
BEGIN = "2 CPU devices: efficiency 0.80 (0.78 to 0.82) relative to single; "


def sentences(rows, explained, baselines):
    speedups = made_reports.speedups_of(rows)
    return report_sentences.sentences(rows, explained, baselines, speedups)


def series_sentence(parts=PARTS, of_base=OF_BASE, own=OWN, baselines=(), **changes):
    """(the sentence of the series or None, Sentences)."""
    explained = made_explanations.rows(own[0]["run_id"], parts, **changes) if parts else []
    if of_base:
        explained += made_explanations.rows(BASE[0]["run_id"], of_base)
    found = sentences([*BASE, *own], explained, baselines)
    series = [one for one in found.sentences if one.subject.endswith("scaling")]
    return (series[0] if series else None), found


def sentence_text(*args, **changes):
    sentence, _ = series_sentence(*args, **changes)
    return sentence.sentence


def test_resolved_parts_are_named_with_their_shares_the_largest_first():
    sentence, found = series_sentence(halves_ms={"sharing": 0.3})
    assert sentence.subject == "resnet50, synthetic, batch 64, weak scaling"
    assert sentence.sentence == (
        "2 CPU devices: efficiency 0.80 (0.78 to 0.82) relative to single; "
        "lost: 0.14 exposed exchange of gradients, 0.04 waiting for input."
    )
    assert sentence.rows[:4] == [
        ("all", "0.20", "0.18 to 0.22", "", "1 less the efficiency"),
        ("waiting for input", "0.04", "0.03 to 0.05", "6", ""),
        ("exposed exchange of gradients", "0.14", "0.13 to 0.15", "7", ""),
        ("devices that slow one another down", "0.002", "\u22120.004 to 0.01", "0.1", UNRESOLVED),
    ]
    assert sentence.evidence == "shown"
    assert sentence.tables == ("speedups", "explanations")
    # A condition that ends no series has the sentence of its step.
    (step,) = (one for one in found.sentences if not one.subject.endswith("scaling"))
    assert step.subject == BASE[0]["run_id"]
    assert step.sentence == "10 % of a step is waiting for input."
    assert step.rows[-1][:4] == ("computation", "0.88", "0.83 to 0.92", "35")


def test_an_exposed_all_reduce_is_beside_what_the_baselines_attain():
    for exchange_ms, time_s, expected in (
        (7.0, 0.002, "0.14 exposed all-reduce at 0.14 of 0.5 GB/s attainable"),
        (7.0, 0.02, "0.14 exposed all-reduce at 0.14 of 0.05 GB/s attainable"),  # it overlaps
    ):
        parts = PARTS | {"exchange": exchange_ms}
        assert expected in sentence_text(parts, baselines=[baseline(OWN[0], time_s)])


def test_no_bandwidth_without_baselines_nor_where_the_exchange_has_more_in_it():
    assert "GB/s" not in sentence_text()
    own = [row | {"devices_per_node": 2} for row in OWN]
    both = {name: time for name, time in PARTS.items() if name != "sharing"}
    found = sentence_text(both, own=own, baselines=[baseline(OWN[0], 0.002)])
    assert "exposed exchange of gradients and devices that slow one another down" in found
    assert "GB/s" not in found


def test_what_remains_is_called_not_resolved_only_if_it_is_shown_to_be_there():
    assert "not resolved" not in sentence_text(halves_ms={"sharing": 0.3})
    found = sentence_text(PARTS | {"exchange": 2.0, "computation": 40.9}, of_base=None)
    assert found.endswith("0.16 not resolved.")


def test_parts_that_may_be_nothing_are_not_named():
    found = sentence_text(halves_ms={"input": 7.0})
    assert "input" not in found and "0.14 exposed exchange" in found
    sentence, _ = series_sentence(halves_ms=dict.fromkeys(PARTS, 50.0))
    assert sentence.sentence == f"{BEGIN}the probes do not resolve what costs it."
    assert sentence.evidence == "open"
    found = sentence_text(PARTS | {"exchange": 30.0, "computation": 12.9})
    assert found.startswith(BEGIN + "its probes lose more (0.6") and "exchange" not in found
    sentence, _ = series_sentence(own=runs(40.1, scatter=0.02, **TWO))
    assert sentence.sentence.endswith("no loss is shown.") and "exchange" not in sentence.sentence
    assert (sentence.evidence, sentence.rows) == ("open", [])


def test_without_probes_the_all_reduce_of_the_baselines_is_set_beside_the_loss():
    sentence, _ = series_sentence(None, None, baselines=[baseline(OWN[0], 0.004)])
    assert re.search(
        r" at the 0\.25 GB/s of the baselines, would take 0\.08 \(.* to .*\) of the 0\.20 lost\.$",
        sentence.sentence,
    )
    assert "exposed" not in sentence.sentence
    assert sentence.evidence == "indicated"


def test_a_series_that_nothing_explains_is_counted_and_one_run_is_not():
    sentence, found = series_sentence(None, None)
    assert (sentence, found.unexplained) == (None, 1)
    found = sentences([BASE[0], OWN[0]], [], [])
    assert (found.sentences, found.unexplained) == ([], 0)


def test_fewer_items_at_once_are_named_in_strong_scaling_only():
    base, own = runs(40.0, **TWO | {"devices": 1}), runs(25.0, batch=32, **TWO)
    halves_ms = {limits.COMPUTATION: 0.2}
    explained = [
        row
        for run, parts in ((own[0], {"exchange": 2.0, "computation": 23.0}),
                           (base[0], {"computation": 40.0}))
        for row in made_explanations.rows(run["run_id"], parts, halves_ms=halves_ms)
    ]  # fmt: skip
    found = sentences([*base, *own], explained, [])
    (strong,) = (one for one in found.sentences if one.subject.endswith("strong scaling"))
    assert "lost: 0.12 computing fewer items at once, 0.08 exposed exchange" in strong.sentence


def test_the_page_has_each_sentence_with_its_numbers_behind_a_click(tmp_path):
    made_explanations.write(tmp_path, made_explanations.rows(OWN[0]["run_id"], PARTS))
    made_baselines.write(tmp_path, made_baselines.exchange(2))
    page = build_report.html_page(made_reports.made(tmp_path, [*BASE, *OWN]))
    assert "lost: 0.14 exposed exchange of gradients, " in page
    section = page.split('<ul class="limits">')[1].split("</ul>")[0]
    seen, behind = section.split("<details>")
    assert "efficiency 0.80" in seen and "<td" not in seen
    assert "<td>exposed exchange of gradients</td>" in behind
    assert 'href="#table-speedups"' in behind and 'href="#table-explanations"' in behind
