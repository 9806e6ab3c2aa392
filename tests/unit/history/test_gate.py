"""gate: a session of a history, judged by the sessions before it."""

import contextlib
import dataclasses
import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from benchmarks.history import failing
from dlbench import Error
from dlbench.history import add_campaign, gate
from dlbench.history.gate import exceeded, past_deviations, predict
from dlbench.history.sources import Source
from dlbench.pages import formats
from support.history import made_campaigns as made
from support.history.simulated_histories import Kind
from support.programs.in_process import dlbench

HISTORY = Path("history")
BATCHES = (8, 16, 32)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def add(week, factor=1.0, repeats=3, batches=BATCHES, site="here", failing=(), **facts):
    """Add the campaign of a week, whose rates scatter by 0.5 % and lie a factor off."""
    chance = np.random.default_rng(week)
    drawn = {
        batch: [None if batch in failing else float(rate) for rate in 1000 * batch * factor * noise]
        for batch in batches
        for noise in [np.exp(chance.normal(0, 0.005, repeats))]
    }
    made.add_session(f"{site}{week}", week, drawn, site=site, **facts)
    receipt = add_campaign.add(Source(f"{site}{week}"), HISTORY)
    assert not receipt["refused"]


@pytest.fixture(scope="module")
def nine_weeks(tmp_path_factory):
    with contextlib.chdir(tmp_path_factory.mktemp("nine")):
        for week in range(9):
            add(week)
        return HISTORY.absolute()


@pytest.fixture
def steady(folder, nine_weeks):
    shutil.copytree(nine_weeks, HISTORY)


def judge(**options):
    return gate.judge(HISTORY, options.pop("machines", {}), **options)


def verdicts(judged):
    return [one.verdict for one in judged.judged]


def test_a_session_like_those_before_passes(steady):
    add(9)
    judged = judge()
    assert judged.passed and verdicts(judged) == [gate.PASS] * 3
    assert judged.session == made.session_id(9) and judged.age_days == pytest.approx(7, abs=0.1)
    assert {one.sessions for one in judged.judged} == {9}


@pytest.mark.parametrize(
    ("factor", "verdict", "passed"), [(0.95, gate.WORSE, False), (1.05, gate.BETTER, True)]
)
def test_losses_and_gains_are_found_alike_and_losses_fail(steady, factor, verdict, passed):
    add(9, factor, driver="560.35")
    judged = judge()
    assert verdicts(judged) == [verdict] * 3 and judged.passed is passed
    assert all(one.ratio == pytest.approx(factor, rel=0.01) for one in judged.judged)
    assert judged.changed == ("gpus driver 550.54 -> 560.35",)


def test_what_changed_of_one_condition_is_named_beside_others_that_stayed_as_they_were():
    for week in range(3):
        drivers = {16: "550.54", 8: "560.35" if week == 2 else "550.54"}
        for batch, driver in drivers.items():  # each in turn, as those of two environments
            start = made.date(week) + timedelta(minutes=batch)
            made.add_session(f"here{week}", week, {batch: [1e3]}, start, driver=driver)
        add_campaign.add(Source(f"here{week}"), HISTORY)
    assert judge().changed == ("gpus driver 550.54 -> 560.35",)


def test_the_base_begins_anew_at_the_last_change(steady):
    add(9)
    for week in range(10, 19):
        add(week, 0.9)
    judged = judge()
    assert judged.passed and {one.sessions for one in judged.judged} == {8}
    assert judged.base_first.date() == made.date(10).date()


def test_with_fewer_than_eight_sessions_it_says_so_and_fails_nothing():
    for week in range(7):
        add(week)
    add(7, 0.5)
    judged = judge()
    assert judged.passed and verdicts(judged) == [gate.TOO_FEW] * 3
    assert judged.judged[0].reason == "7 of 8 sessions"


def test_a_condition_that_failed_or_is_missing_fails_unless_it_may(steady):
    add(9, batches=(8, 16), failing=(8,))
    judged = judge()
    assert verdicts(judged) == [gate.FAILED, gate.MISSING, gate.PASS]
    assert [one.verdict for one in judged.failures] == [gate.FAILED, gate.MISSING]
    assert made.session_id(8) in judged.failures[1].reason
    assert judge(allowed=["failed", "missing"]).passed


def test_a_session_may_be_judged_by_the_one_before_or_by_one_that_is_named(steady):
    add(9, 0.96)
    assert verdicts(judge(base=gate.LAST)) == [gate.WORSE] * 3
    judged = judge(base=made.session_id(3))
    assert verdicts(judged) == [gate.WORSE] * 3
    assert judged.base_first == judged.base_last and judged.base_first.date() == made.date(3).date()


def test_a_tagged_session_judges_also_those_after_a_change_that_was_found_since(steady):
    add(9)
    for week in range(10, 20):
        add(week, 0.9)
    tags = {"accepted": made.session_id(2)}
    judged = judge(base="accepted", tags=tags)
    assert verdicts(judged) == [gate.WORSE] * 3
    assert (judged.tag, judged.base) == ("accepted", made.session_id(2))
    assert judged.judged[0].ratio == pytest.approx(0.9, abs=0.02)
    assert {one.sessions for one in judged.judged} == {9}  # of the scatter: those since the change
    assert judge(tags=tags).passed


def test_a_loss_as_large_as_two_that_came_and_went_passes_and_says_why(steady):
    for week in range(9, 20):
        add(week, {12: 0.93, 15: 1.08}.get(week, 1))
    add(20, 0.95)
    judged = judge()
    assert verdicts(judged) == [gate.PASS] * 3
    assert {one.reason for one in judged.judged} == {
        "past sessions were as far off without a change"
    }


def test_one_bad_session_does_not_hide_the_next(steady):
    add(9, 0.8)
    for week in range(10, 20):
        add(week)
    add(20, 0.95)
    assert verdicts(judge()) == [gate.WORSE] * 3


def test_past_sessions_are_as_far_off_as_the_others_would_have_predicted():
    means = np.random.default_rng(2).normal(7, 0.01, 9)
    others = [np.delete(means, at) for at in range(9)]
    predicted = [predict(one, np.full(8, 3), 1e-9, 3, None) for one in others]
    off = [abs(x - one.level) / one.error for x, one in zip(means, predicted, strict=True)]
    assert past_deviations(means, means) == pytest.approx(off)
    assert exceeded([1.0] * 50 + [9.0, 8.0, 7.0], predicted[:1]) == 8.0  # one of 20 was beyond
    assert exceeded([1.0] * 10 + [9.0, 8.0], predicted[:1]) == 9.0
    assert exceeded([1.0] * 10 + [2.0, 8.0], predicted[:1]) == 2.0  # all but one are usual


def test_a_loss_below_the_least_size_passes():
    for week in range(9):
        add(week, repeats=10)
    add(9, 0.97, repeats=10)
    assert not judge().passed
    assert judge(least=0.05).passed


def test_sessions_of_another_machine_or_site_are_no_base(steady):
    add(9, gpus=8)
    judged = judge()
    assert judged.passed and verdicts(judged) == [gate.NEW] * 3
    (other,) = judged.others
    assert "here" in other
    key = other.split(" ")[0]
    judged = judge(machines={"one": [key, judged.machine_id]})
    assert verdicts(judged) == [gate.PASS] * 3 and judged.others == ()


def test_a_condition_with_the_name_of_another_is_not_judged_by_it():
    for week in range(9):
        add(week, data="a" * 64)
    add(9, 0.5, data="b" * 64)
    judged = judge()
    assert judged.passed and verdicts(judged) == [gate.NEW] * 3
    assert judged.judged[0].reason.startswith("not measured before with its data and own files")


def test_an_earlier_session_is_judged_by_what_was_known_before_it(steady):
    for week in range(9, 12):
        add(week, 0.9 if week > 9 else 1)
    assert judge(session=made.session_id(9)).passed
    assert not judge(session=made.session_id(10)).passed


def test_an_empty_history_and_names_that_are_none_are_refused():
    HISTORY.mkdir()
    with pytest.raises(Error, match="expected a history with sessions"):
        judge()
    for week in range(2):
        add(week)
    with pytest.raises(Error, match="it has no session '2026'"):
        judge(session="2026")
    with pytest.raises(Error, match=r"there is no tag 'v1.0', nor a session .*none is in the conf"):
        judge(base="v1.0")


def command(*arguments):
    return dlbench("gate", *arguments)


def test_the_command_says_the_verdict_by_its_exit_code_and_writes_files(steady):
    add(9, 0.9)
    Path("config.yaml").write_text(f"tags: {{accepted: {made.session_id(1)}}}\n")
    failed = command("--write-json", "gate.json", "--write-markdown", "gate.md")
    assert failed.returncode == 1, failed.stderr
    assert "3 conditions of here: 3 worse." in failed.stdout
    assert Path("gate.json").read_text().count('"fails": true') == 3
    assert Path("gate.md").read_text().startswith("## Session ")
    allowed = command("--json", "--allow", "worse")
    assert allowed.returncode == 0
    assert json.loads(allowed.stdout)["allowed"] == ["worse"]
    tagged = command("--base", "accepted", "--configfile", "config.yaml")
    assert tagged.returncode == 1
    assert f"accepted ({made.session_id(1)}) of 2026-01-12" in " ".join(tagged.stdout.split())
    misspelt = command("--base", "acepted", "--configfile", "config.yaml")
    assert misspelt.returncode == 2 and "did you mean 'accepted'?" in misspelt.stderr
    refused = command("nowhere")
    assert refused.returncode == 2
    assert "nowhere: expected a history with sessions" in refused.stderr


@pytest.mark.parametrize("kind", [{"freedom": 3}, {"sessions": 12}], ids=["heavy tails", "normal"])
def test_of_sessions_without_a_change_five_percent_fail_at_most(kind):
    false, _, found = failing(Kind(**{"sessions": 30, "scatter": 0.005} | kind), 100, 1)
    assert false <= 0.05 and found >= 0.8


STUDIES = {"s1": "nightly", "s2": "acceptance", "s3": "nightly"}


@pytest.mark.parametrize(
    ("base", "tags", "session"),
    [
        ("last", {}, "last"),
        ("since-change", {}, "since-change"),
        ("s1", {}, "s1"),
        ("good", {"good": "s2"}, "s2"),  # of another study, but there is no other
        ("good", {"good": ["s1", "s2", "of another machine"]}, "s1"),
        ("s1", {"s1": "s3"}, "s3"),
    ],
)
def test_a_base_is_a_word_a_tag_or_a_session(base, tags, session):
    assert gate.base_named(base, tags, STUDIES, "nightly") == session


def test_a_tag_that_is_not_there_is_refused_with_the_nearest_name():
    with pytest.raises(Error, match=r"no tag 'goood'.*did you mean 'good'.*one of good, old"):
        gate.base_named("goood", {"good": "s1", "old": "s2"}, STUDIES, "nightly")


def test_a_tag_without_a_session_of_this_machine_or_with_two_is_refused():
    with pytest.raises(Error, match=r"tag good: none of its sessions \(gone\) is in the history"):
        gate.base_named("good", {"good": ["gone"]}, STUDIES, "nightly")
    with pytest.raises(Error, match="tag good: s1, s3 are all of study nightly"):
        gate.base_named("good", {"good": ["s1", "s2", "s3"]}, STUDIES, "nightly")


PREDICTED = predict(np.log([100, 101, 99, 100, 102, 98, 100, 100]), np.full(8, 3), 1e-4, 3, None)
LABELS = {
    "condition_id": "c1",
    "metric": "images_per_second",
    "unit": "items/s",
    "better": "higher",
}
WORSE = gate.Judged(
    **LABELS, condition="lenet5 batch 8", verdict=gate.WORSE, runs=3, mean_log=float(np.log(90)),
    sessions=8, prediction=PREDICTED, p=0.001,
)  # fmt: skip
MISSING = gate.Judged(
    **LABELS, condition="lenet5 <batch> 16", verdict=gate.MISSING, reason="it was measured in s1"
)
NEW = gate.Judged(**LABELS, condition="lenet5 batch 32", verdict=gate.NEW, reason="not before")
JUDGED = gate.Gate(
    session="s2", study="nightly", site="here", machine_id="abc", machine="1 x CPU",
    started_at=datetime(2026, 11, 27), base=gate.SINCE_CHANGE, base_first=datetime(2026, 11, 1),
    base_last=datetime(2026, 11, 26), others=(), changed=("kernel 6.1 -> 6.2",), least=0.01,
    judged=(WORSE, MISSING, NEW),
)  # fmt: skip


def test_the_page_says_the_outcome_first_and_then_why():
    text = formats.text(gate.page(JUDGED), 120)
    assert text.splitlines()[0] == "Session s2: failed"
    assert "3 conditions of here: 1 worse, 1 missing, 1 new." in text
    assert "2026-11-01 to 2026-11-26; the newest is 1 day old" in " ".join(text.split())
    assert "kernel 6.1 -> 6.2" in text
    assert "0.900" in text and "(97.04 to 103)" in text


def test_every_form_of_it_escapes_what_others_wrote():
    assert "&lt;batch&gt; 16" in formats.html_page(gate.page(JUDGED))
    assert "lenet5 \\<batch\\> 16" in formats.markdown(gate.page(JUDGED))


def test_the_json_has_numbers_that_say_the_same_and_none_for_what_is_unknown():
    plain = json.loads(json.dumps(gate.values(JUDGED), allow_nan=False))
    assert plain["passed"] is False and plain["base_age_days"] == 1
    worse, missing, new = plain["conditions"]
    assert worse["ratio"] == pytest.approx(0.9, abs=1e-3) and worse["fails"]
    assert worse["prediction95_low"] < worse["expected"] < worse["prediction95_high"]
    assert missing["ratio"] is None and missing["fails"] and not new["fails"]
    assert plain["power"]["0.05"] > plain["power"]["0.01"]


def test_where_nothing_could_be_judged_nothing_has_passed():
    first = dataclasses.replace(JUDGED, judged=(NEW,))
    page = gate.page(first)
    assert page.kind == "open" and page.title == "Session s2: nothing could be judged"
    assert gate.values(first)["passed"] is None
    failed = dataclasses.replace(JUDGED, judged=(NEW, MISSING))
    assert gate.page(failed).title == "Session s2: failed"


def test_allowed_verdicts_fail_nothing_and_are_named():
    allowed = dataclasses.replace(JUDGED, allowed=(gate.WORSE, gate.MISSING))
    page = gate.page(allowed)
    assert page.kind == "good" and page.title == "Session s2: passed"
    assert "worse, missing" in formats.text(page)
