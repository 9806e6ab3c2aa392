"""Comparing campaigns: what is joined, what the numbers are, and what a page says of them."""

import dataclasses
import json
import math
import re

import pyarrow.parquet as pq
import pytest

from dlbench import Error
from dlbench.analysis import campaigns, compare_runs
from dlbench.pages import formats
from dlbench.records import run_record
from dlbench.tables import parquet_files, table_columns
from support.comparisons.compared_campaigns import A_RATES, STEP, compared, rates
from support.programs.in_process import dlbench
from support.runs.made_runs import measured

# By hand: the logarithms of three such rates lie ln 1.1 = 0.0953102 apart, which is their sample
# standard deviation. Two such sides have the standard error 0.0953102 sqrt(2 / 3) = 0.0778204 and
# 4 degrees of freedom, for which the two-sided p of t is 1 - 3/4 u (1 - t2 / (12 v)) with
# v = 1 + t2 / 4 and u = t / sqrt(v). A ratio of 1.1 ** (2 sqrt(2)) has t2 = 12 and p = 0.025721.
JUST_SHOWN = 2 * math.sqrt(2)


def test_ratio_and_interval_are_those_of_geometric_means():
    (pair,) = compared([measured(A_RATES)], [measured(rates(2))]).pairs
    assert pair.a.mean.value == pytest.approx(110)
    assert pair.compared.ratio == pytest.approx(1.21)
    # Half the interval is 2.776445 x 0.0778204 = 0.216064: 1.21 exp(-+0.216064).
    assert pair.compared.ci95_low == pytest.approx(0.974878, rel=1e-5)
    assert pair.compared.ci95_high == pytest.approx(1.501828, rel=1e-5)
    # t = 2 ln 1.1 / 0.0778204 = sqrt(6), v = 2.5, u = 1.549193: 1 - 0.75 u 0.8 = 0.070484.
    assert pair.compared.p_difference == pytest.approx(0.070484, abs=1e-6)
    assert pair.verdict == "undecided"


def test_campaigns_of_texts_are_compared_in_tokens_unless_another_metric_is_named():
    texts = measured(A_RATES, tokens=20), measured(rates(2), tokens=20)
    found = compared(texts[:1], texts[1:])
    assert (found.metric.name, found.metric.unit) == ("tokens_per_second", "tokens/s")
    assert found.pairs[0].a.mean.value == pytest.approx(20 * 110)
    assert found.pairs[0].compared.ratio == pytest.approx(1.21)
    mixed = compared(texts[:1], [*texts[1:], measured(A_RATES, xla=True)])
    named = compared(texts[:1], texts[1:], metric_name="images_per_second")
    assert mixed.metric.name == named.metric.name == "images_per_second"


def test_all_combinations_are_one_family():
    one = compared([measured(A_RATES)], [measured(rates(JUST_SHOWN))])
    assert one.pairs[0].compared.p_difference == pytest.approx(0.025721, abs=1e-6)
    assert one.pairs[0].verdict == "faster"
    both = compared(
        [measured(A_RATES), measured(A_RATES, xla=True)],
        [measured(rates(JUST_SHOWN)), measured(rates(JUST_SHOWN), xla=True)],
    )
    assert [pair.compared.p_difference for pair in both.pairs] == pytest.approx(
        [0.051442] * 2, 1e-4
    )
    assert {pair.verdict for pair in both.pairs} == {"undecided"}


def test_faster_or_slower_by_more_than_the_margin_is_said():
    # The margin is one step; beyond it a difference is shown from t = 2.776445 on, which is
    # 2.776445 x 0.0778204 / 0.0953102 = 2.26695 steps.
    for steps, verdict, is_beyond in (
        (3.26, "faster", False), (3.27, "faster", True),
        (-3.26, "slower", False), (-3.27, "slower", True),
    ):  # fmt: skip
        found = compared([measured(A_RATES)], [measured(rates(steps))], margin=0.1)
        (pair,) = found.pairs
        assert pair.verdict == verdict
        assert pair.better_beyond_margin == (is_beyond and steps > 0)
        assert pair.beyond_margin == (is_beyond and steps < 0)
        text = " ".join(formats.text(compare_runs.comparison_page(found)).split())
        assert (f"{verdict}: by more" in text) == is_beyond


def test_of_a_time_less_is_faster():
    def only(steps, **options):
        sides = [measured(A_RATES)], [measured(rates(steps))]
        return compared(*sides, metric_name="step_time_mean_s", **options).pairs[0]

    assert only(3).compared.ratio == pytest.approx(1.1**-3)
    assert (only(3).verdict, only(-3).verdict) == ("faster", "slower")
    assert only(-4, margin=0.1).beyond_margin and not only(4, margin=0.1).beyond_margin


def test_verdicts_within_a_margin_and_the_order_of_rows():
    def side(last, *factors):
        batches = zip((8, 16, 32), factors, strict=True)
        tight = 1000, 1000.1, 1000.2
        made = [measured([f * rate for rate in tight], batch_per_device=b) for b, f in batches]
        return [*made, measured([last], xla=True)]

    found = compared(side(9, 1, 1, 1), side(18, 1.001, 0.9, 1.05))
    assert [(p.values["batch_per_device"], p.verdict) for p in found.pairs] == [
        (16, "slower"), (32, "faster"), (8, "undecided"), (8, "equivalent"),
    ]  # fmt: skip


def test_few_runs_give_a_ratio_and_no_verdict():
    for a, b, reason in (
        ([100], [110], "one run a side"),
        ([100, 101, 102], [110], "one run in B"),
        ([100], [110, 111], "one run in A"),
        ([100, 101], [110, 111, 112], "fewer than 3 runs a side"),
    ):
        (pair,) = compared([measured(a)], [measured(b)]).pairs
        assert (pair.verdict, pair.reason) == ("undecided", reason)
        assert pair.compared.ratio > 1
        assert math.isnan(pair.compared.ci95_low) == (min(len(a), len(b)) == 1)


def test_seed_repeat_and_facts_do_not_tell_combinations_apart_and_are_said_to_differ():
    facts = {"keras": "3", "software_origin": "EESSI_VERSION 2023.06, module CUDA 12.1"}
    other = facts | {"software_origin": "EESSI_VERSION 2023.06, module CUDA 12.4"}
    found = compared(
        [measured(A_RATES, seed=1, facts=facts | {"site": "here", "git_commit": "a"})],
        [measured(A_RATES, seed=2, facts=other | {"site": "there", "host": "n1"})],
    )
    assert found.pairs[0].compared.ratio == pytest.approx(1)
    assert found.differs == {
        "seed": (["1"], ["2"]), "site": (["here"], ["there"]), "git_commit": (["a"], []),
        "software_origin": (["module CUDA 12.1"], ["module CUDA 12.4"]),
    }  # fmt: skip
    for name in ("seed", "repeat"):
        with pytest.raises(Error, match=f"{name}: repeats differ in it"):
            compared([measured([1])], [measured([1])], on=[name])


def test_failures_are_named_on_their_side_and_are_a_regression_where_all_failed():
    partly = [*measured([1, 2], xla=True), *measured([None], "failed", xla=True)]
    sides = [measured(A_RATES), measured(A_RATES, xla=True)], [measured([None] * 3, "oom"), partly]
    found = compared(*sides)
    some, none = found.pairs
    assert (some.b.failed, len(some.b.values)) == ({"failed": 1}, 2)
    assert (none.verdict, none.reason, none.b.failed) == ("failed", "in B", {"oom": 3})
    assert found.regressions(["failed"]) == [none]
    assert found.regressions(["slower"]) == []
    text = formats.text(compare_runs.comparison_page(found), width=100)
    assert "1.414 (2), 1 failed" in text
    assert "3 oom" in text


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        (["skipped"] * 3, "skipped"),
        (["timeout", "skipped"], "timeout"),
        (["oom", "timeout"], "failed"),
        (["failed"], "failed"),
    ],
)
def test_what_was_skipped_or_ran_out_of_time_has_not_failed(statuses, verdict):
    others = [one for status in statuses for one in measured([None], status)]
    found = compared([measured(A_RATES)], [others])
    (pair,) = found.pairs
    assert (pair.verdict, pair.reason, pair.is_different) == (verdict, "in B", False)
    kinds = ("slower", "failed", "timeout", "skipped")
    assert [k for k in kinds[:3] if found.regressions([k])] == [verdict] * (verdict != "skipped")
    assert f"1 {verdict}." in compare_runs.comparison_page(found).lead


def test_what_one_side_has_only_is_listed_with_its_nearest_partner():
    found = compared(
        [measured([1]), measured([1], batch_per_device=64, xla=True)],
        [measured([1]), measured([1], batch_per_device=32), measured([1], model="vgg11")],
    )
    listed = {
        (one.side, one.values["model"], one.values["batch_per_device"]): one.partner
        for one in found.unmatched
    }
    assert listed[("A", "lenet5", 64)] == {"batch_per_device": (64, 32), "xla": (True, False)}
    assert listed[("B", "lenet5", 32)] == {"batch_per_device": (32, 8)}
    assert listed[("B", "vgg11", 8)] == {"model": ("vgg11", "lenet5")}
    of_a, _ = compare_runs.comparison_page(found).sections[-2:]
    assert (of_a.heading, of_a.table.headings[2]) == ("Only in A (1)", "nearest in B differs in")
    assert of_a.table.rows[0][1:] == ["1", "batch_per_device 64 / 32; xla true / false"]


def test_fields_can_be_ignored_where_that_mixes_no_conditions():
    a = [measured(A_RATES, environment="old")]
    b = [measured(A_RATES, environment="new")]
    with pytest.raises(Error, match=r"differ everywhere .*\n  environment: A old; B new"):
        compared(a, b)
    found = compared(a, b, ignore=["environment"])
    assert found.differs["environment"] == (["old"], ["new"])
    assert compared(a, b, on=["model", "dataset"]).joined == ("model", "dataset")
    mixed = [*b, measured(A_RATES, environment="newer")]
    with pytest.raises(Error, match=r"B: .* though they differ in environment \(new, newer\)"):
        compared(a, mixed, ignore=["environment"])


def test_what_one_side_does_not_say_is_not_joined_on():
    known = measured(A_RATES, augment=False)
    unknown = [
        dataclasses.replace(run, fields={n: v for n, v in run.fields.items() if n != "augment"})
        for run in known
    ]
    found = compared([known], [unknown])
    assert (len(found.pairs), found.not_joined) == (1, ("augment",))
    with pytest.raises(Error, match=r"A: .* differ in augment"):
        compared([known, measured(A_RATES, augment=True)], [unknown])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric_name": "image_per_second"}, "did you mean 'images_per_second'"),
        ({"metric_name": "energy_j"}, "no run in common has the metric energy_j"),
        ({"margin": 0}, "margin: expected a share between 0 and 1"),
        ({"margin": math.nan}, "margin: expected"),
        ({"on": ["modle"]}, "no field 'modle' .did you mean 'mode'"),
    ],
)
def test_bad_questions_are_refused(options, message):
    with pytest.raises(Error, match=message):
        compared([measured([1])], [measured([1])], **options)


def test_numbers_without_a_logarithm_or_of_different_units_are_refused():
    for value in (math.nan, 0.0, -1.0, math.inf):
        with pytest.raises(Error, match=r"lenet5-.*: images_per_second is .*; ratios need"):
            compared([measured([1])], [measured([value])])
    sides = [[*named(A_RATES)], [*named(A_RATES, unit="MB/s")]]
    with pytest.raises(Error, match=r"metric busbw: unit is 'GB/s' in .* are not compared"):
        compared(sides[:1], sides[1:], metric_name="busbw")


def results(place, rates_by_batch, **facts):
    """A folder of results in which runs of some batch sizes are done."""
    for batch, values in rates_by_batch.items():
        for run in measured(values, batch_per_device=batch):
            names = ("model", "dataset", "steps", "batch_per_device", "repeat")
            content = {
                "run_id": run.run_id, "spec": {name: run.fields[name] for name in names},
                "status": "ok", "message": "", "made_from": {"code": "c" * 64},
                "log_sha256": "0" * 64, "summary": run.numbers,
                "provenance": {"versions": {"tensorflow": "2.18.1"}, **facts},
            }  # fmt: skip
            (place / "runs" / run.run_id).mkdir(parents=True)
            run_record.write(place / "runs" / run.run_id / "run.json", content, [])
    return place


def start(*arguments):
    return dlbench("compare", *arguments)


def test_the_program_compares_folders_of_which_one_still_grows(tmp_path):
    a = results(tmp_path / "a", {8: A_RATES, 16: A_RATES}, site={"name": "here"})
    b = results(tmp_path / "b" / "results", {8: rates(-5)}, site={"name": "<script>x</script>"})
    (b / "runs" / "being-trained").mkdir()
    (b / "runs" / "half").mkdir()
    (b / "runs" / "half" / "run.json").write_text('{"run_id": "ha')
    for suffix, expected in (
        ("txt", "differs: site"),
        ("md", "| differs: site | here |"),
        ("html", "&lt;script&gt;x"),
        ("json", '"verdict": "slower"'),
    ):
        output = tmp_path / f"page.{suffix}"
        finished = start(a, tmp_path / "b", "--output", output)
        assert finished.returncode == 0, finished.stderr
        assert expected in output.read_text()
    refused = start(a, tmp_path / "b", "--output", tmp_path / "page.pdf")
    assert refused.returncode == 2 and "expected a name that ends in .txt, .md" in refused.stderr
    assert not (tmp_path / "page.pdf").exists()
    found = json.loads((tmp_path / "page.json").read_text())
    assert (found["b"]["finished"], found["b"]["not_ended"]) == (3, 1)
    assert "half/run.json" in found["b"]["unread"][0]
    assert found["unmatched"][0]["nearest_differs"] == {"batch_per_device": [16, 8]}
    assert start(a, tmp_path / "b", "--fail-on", "slower").returncode == 1
    assert start(tmp_path / "b", a, "--fail-on", "slower", "failed").returncode == 0


def test_what_is_no_campaign_is_refused_with_exit_code_2(tmp_path):
    a = results(tmp_path / "a", {8: A_RATES})
    b = results(tmp_path / "b", {16: A_RATES})
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun" / "runs" / "x").mkdir(parents=True)
    (tmp_path / "x.csv").write_text("model,status\nvgg11,ok\n")
    parquet_files.write(tmp_path / "new.parquet", [], table_columns.RUNS)
    table = pq.read_table(tmp_path / "new.parquet")
    pq.write_table(
        table.replace_schema_metadata({"schema_version": "99"}), tmp_path / "new.parquet"
    )
    pq.write_table(table.replace_schema_metadata({}), tmp_path / "other.parquet")
    for arguments, message in (
        ([a, tmp_path / "empty"], "not a results folder"),
        ([a, tmp_path / "begun"], "1 have no record yet"),
        ([a, tmp_path / "absent"], "no such folder"),
        ([a, tmp_path / "x.csv"], "no column run_id, dataset"),
        ([a, tmp_path / "new.parquet"], "schema version 99"),
        ([a, tmp_path / "other.parquet"], "no schema_version"),
        ([a, b], "batch_per_device: A 8; B 16"),
        ([a, a, "--margin", "1"], "margin: expected"),
        ([a], "expected A with one of"),
        ([a, a, "--format", "pdf"], "invalid choice"),
    ):
        finished = start(*arguments)
        assert (finished.returncode, message in finished.stderr) == (2, True), finished.stderr
        assert "Traceback" not in finished.stderr


def named(values, better="higher", unit="GB/s", **fields):
    """Runs of a throughput of 1 whose program names a bandwidth with these values."""
    runs = measured([1.0] * len(values), **fields)
    for run, value in zip(runs, values, strict=True):
        run.numbers["busbw"] = value
        metric = {"run_id": run.run_id, "name": "busbw", "unit": unit, "better": better}
        yield dataclasses.replace(run, metrics=(metric | {"value": value},))


@pytest.mark.parametrize(
    ("better", "verdict"), [("higher", "better"), ("lower", "worse"), ("", "differs")]
)
def test_a_metric_that_programs_name_is_compared_in_its_direction(better, verdict):
    sides = [[*named(values, better)] for values in (A_RATES, rates(JUST_SHOWN))]
    found = compared(sides[:1], sides[1:], metric_name="busbw")
    (pair,) = found.pairs
    assert (pair.verdict, found.metric.unit) == (verdict, "GB/s")
    assert pair.compared.p_difference == pytest.approx(0.025721, abs=1e-6)
    assert f"1 {verdict}" in formats.text(compare_runs.comparison_page(found, None))


def test_metrics_of_a_table_are_read_from_the_one_beside_it(tmp_path):
    run = {"status": "ok", "model": "lenet5"}
    runs = [run | {"run_id": "a", "images_per_second": 5.0}, run | {"run_id": "b"}]
    metrics = [{"run_id": "b", "name": "busbw", "value": 7.0, "unit": "GB/s", "better": "higher"}]
    parquet_files.write(tmp_path / "runs.parquet", runs, table_columns.RUNS)
    parquet_files.write(tmp_path / "metrics.parquet", metrics, table_columns.METRICS)
    found = campaigns.read(tmp_path / "runs.parquet")
    assert [run.numbers for run in found.runs] == [{"images_per_second": 5.0}, {"busbw": 7.0}]
    assert campaigns.find_metric("busbw", found).unit == "GB/s"


def test_the_page_is_one_file_without_scripts_whatever_the_names_are():
    found = compared(
        [measured(A_RATES, facts={"site": "<script>alert(1)</script>"})],
        [measured(rates(-4), facts={"site": "a|b *c* \"d\" & 'e'"})],
    )
    made = formats.html_page(compare_runs.comparison_page(found, found.regressions(["slower"])))
    assert not re.search(r"<(script|link|img|iframe)| (src|href)=", made)
    for tag in set(re.findall(r"</(\w+)>", made)):
        assert len(re.findall(rf"<{tag}\b", made)) == made.count(f"</{tag}>"), tag
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in made
    assert "@import" not in made and "url(" not in made
    markdown = formats.markdown(compare_runs.comparison_page(found))
    assert r"a\|b \*c\*" in markdown
    assert r"\<script\>" in markdown
    assert "| combination | A | B | B / A | 95 % interval | verdict |\n| --- | ---: |" in markdown


def test_campaigns_that_share_no_session_are_said_to_be_measured_apart_and_checked_all_the_same():
    def of(session, steps):
        runs = measured(rates(steps))
        return [dataclasses.replace(run, session=session) for run in runs]

    together, apart = (compared([of("s1", 0)], [of(name, -2)]) for name in ("s1", "s2"))
    for found in (together, apart):
        page = compare_runs.comparison_page(found)
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

    page = compare_runs.comparison_page(compared(both(A_RATES), both(rates(1))))
    assert page.sections[0].paragraphs[0] == "in common: XLA"


def test_text_is_as_wide_as_it_may_be_and_words_are_broken_where_they_do_not_fit():
    long = "x" * 30 + " y" * 40
    found = compared(
        [measured(A_RATES, strategy_options=long), measured(A_RATES, xla=True)],
        [measured(rates(1), strategy_options=long), measured(rates(1), precision="bfloat16")],
    )
    for width in (80, 100, 120):
        lines = formats.text(compare_runs.comparison_page(found), width).splitlines()
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
    assert reason in " ".join(formats.text(compare_runs.comparison_page(loud), 200).split())
    (plain,) = compare_runs.values(loud)["combinations"]
    assert plain["ab"[side]]["disturbed"] == 1 and plain["reason"] == reason
