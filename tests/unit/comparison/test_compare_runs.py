"""Comparing campaigns: what is joined, what the numbers are, and what a page says of them."""

import dataclasses
import json
import math
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from made_runs import campaign, finish, measured, write

from dlbench import Error
from dlbench.comparison import campaigns, compare_runs, comparison_page
from dlbench.comparison import plain as campaign_plain
from dlbench.comparison.campaigns import Measured
from dlbench.log.event_fields import STATUSES
from dlbench.pages import page_html, page_text
from dlbench.records import run_record
from dlbench.results import export_runs
from dlbench.study.runs import Run
from dlbench.tables import parquet_files, table_columns

PROGRAM = Path(__file__).parents[3] / "workflow_scripts" / "compare_runs.py"
STEP = 1.1
A_RATES = (100, 110, 121)  # 110 STEP ** -1, 0, 1
# By hand: the logarithms of three such rates lie ln 1.1 = 0.0953102 apart, which is their sample
# standard deviation. Two such sides have the standard error 0.0953102 sqrt(2 / 3) = 0.0778204 and
# 4 degrees of freedom, for which the two-sided p of t is 1 - 3/4 u (1 - t2 / (12 v)) with
# v = 1 + t2 / 4 and u = t / sqrt(v). A ratio of 1.1 ** (2 sqrt(2)) has t2 = 12 and p = 0.025721.
JUST_SHOWN = 2 * math.sqrt(2)


def rates(steps):
    """Those of A times 1.1 to the power of `steps`."""
    return [rate * STEP**steps for rate in A_RATES]


def compared(a, b, **options):
    return compare_runs.compare(campaign(*a), campaign(*b), **options)


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


def test_slower_by_more_than_the_margin_is_more_than_slower():
    def only(steps):
        return compared([measured(A_RATES)], [measured(rates(steps))], margin=0.1).pairs[0]

    # The margin is one step; beyond it a difference is shown from t = 2.776445 on, which is
    # 2.776445 x 0.0778204 / 0.0953102 = 2.26695 steps.
    assert (only(-3.26).verdict, only(-3.26).beyond_margin) == ("slower", False)
    assert (only(-3.27).verdict, only(-3.27).beyond_margin) == ("slower", True)
    assert not only(9).beyond_margin


def test_of_a_time_less_is_faster():
    def only(steps, **options):
        found = compared(
            [measured(A_RATES)], [measured(rates(steps))], metric_name="step_time_mean_s", **options
        )
        return found.pairs[0]

    assert only(3).compared.ratio == pytest.approx(1.1**-3)
    assert (only(3).verdict, only(-3).verdict) == ("faster", "slower")
    assert only(-4, margin=0.1).beyond_margin and not only(4, margin=0.1).beyond_margin


def test_verdicts_within_a_margin_and_the_order_of_rows():
    tight = [1000, 1000.1, 1000.2]
    found = compared(
        [measured(tight, batch_per_device=b) for b in (8, 16, 32)] + [measured([9], xla=True)],
        [
            measured([s * r for r in tight], batch_per_device=b)
            for b, s in ((8, 1.001), (16, 0.9), (32, 1.05))
        ]
        + [measured([18], xla=True)],
    )
    assert [(p.values["batch_per_device"], p.verdict) for p in found.pairs] == [
        (16, "slower"),
        (32, "faster"),
        (8, "undecided"),
        (8, "equivalent"),
    ]


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ([100], [110], "one run a side"),
        ([100, 101, 102], [110], "one run in B"),
        ([100], [110, 111], "one run in A"),
        ([100, 101], [110, 111, 112], "fewer than 3 runs a side"),
    ],
)
def test_few_runs_give_a_ratio_and_no_verdict(a, b, reason):
    (pair,) = compared([measured(a)], [measured(b)]).pairs
    assert (pair.verdict, pair.reason) == ("undecided", reason)
    assert pair.compared.ratio > 1
    assert math.isnan(pair.compared.ci95_low) == (min(len(a), len(b)) == 1)


def test_seed_and_repeat_do_not_tell_combinations_apart():
    found = compared([measured(A_RATES, seed=1)], [measured(A_RATES, seed=2)])
    assert found.pairs[0].compared.ratio == pytest.approx(1)
    assert found.differs["seed"] == (["1"], ["2"])
    for name in ("seed", "repeat"):
        with pytest.raises(Error, match=f"{name}: repeats differ in it"):
            compared([measured([1])], [measured([1])], on=[name])


def test_what_differs_between_the_sides_is_said_once():
    found = compared(
        [measured(A_RATES, facts={"site": "here", "git_commit": "a", "keras": "3"})],
        [measured(A_RATES, facts={"site": "there", "host": "n1", "keras": "3"})],
    )
    assert found.differs == {"site": (["here"], ["there"]), "git_commit": (["a"], [])}


def test_failures_are_named_on_their_side_and_are_a_regression_where_all_failed():
    found = compared(
        [measured(A_RATES), measured(A_RATES, xla=True)],
        [
            measured([None] * 3, "oom"),
            [*measured([1, 2], xla=True), *measured([None], "failed", xla=True)],
        ],
    )
    some, none = found.pairs
    assert (some.b.failed, len(some.b.values)) == ({"failed": 1}, 2)
    assert (none.verdict, none.reason, none.b.failed) == ("failed", "in B", {"oom": 3})
    assert found.regressions(["failed"]) == [none]
    assert found.regressions(["slower"]) == []
    text = page_text.text(comparison_page.comparison_page(found), width=100)
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
    assert (pair.verdict, pair.reason, pair.shown) == (verdict, "in B", False)
    kinds = ("slower", "failed", "timeout", "skipped")
    assert [k for k in kinds[:3] if found.regressions([k])] == [verdict] * (verdict != "skipped")
    assert f"1 {verdict}." in comparison_page.comparison_page(found).lead


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
        Measured(
            run.run_id,
            {n: v for n, v in run.fields.items() if n != "augment"},
            "ok",
            run.numbers,
            {},
        )
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
        ({"metric_name": "energy_j"}, "metric energy_j is not there"),
        ({"margin": 0}, "margin: expected a share between 0 and 1"),
        ({"margin": math.nan}, "margin: expected"),
        ({"on": ["modle"]}, "no field 'modle' .did you mean 'mode'"),
    ],
)
def test_bad_questions_are_refused(options, message):
    with pytest.raises(Error, match=message):
        compared([measured([1])], [measured([1])], **options)


@pytest.mark.parametrize("value", [math.nan, 0.0, -1.0, math.inf])
def test_a_number_that_has_no_logarithm_is_refused_with_its_run(value):
    with pytest.raises(Error, match=r"lenet5-.*: images_per_second is .*; ratios need"):
        compared([measured([1])], [measured([value])])


def results(place, rates_by_batch, **facts):
    """A folder of results in which runs of some batch sizes are done."""
    for batch, values in rates_by_batch.items():
        for run in measured(values, batch_per_device=batch):
            spec = {
                n: v
                for n, v in run.fields.items()
                if n in ("model", "dataset", "steps", "batch_per_device", "repeat")
            }
            content = {
                "run_id": run.run_id,
                "spec": spec,
                "status": "ok",
                "message": "",
                "made_from": {"code": "c" * 64},
                "log_sha256": "0" * 64,
                "summary": run.numbers,
                "provenance": {"versions": {"tensorflow": "2.18.1"}, **facts},
            }
            (place / "runs" / run.run_id).mkdir(parents=True)
            run_record.write(place / "runs" / run.run_id / "run.json", content, [])
    return place


def start(*arguments):
    return subprocess.run(
        [sys.executable, PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False
    )


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


def test_all_forms_of_a_campaign_are_the_same(study, tmp_path):
    for run in study.runs[:3]:
        finish(run, 60)
    write(study.runs[3])
    made = [f"runs.{suffix}" for suffix in ("csv", "parquet", "json")]
    for name in made:
        export_runs.export(study, name, STATUSES)
    folder = campaigns.read("results")
    assert folder.not_ended == 1
    for name in made:
        table = campaigns.read(name)
        found = compare_runs.compare(folder, table)
        assert all(pair.compared.ratio == pytest.approx(1) for pair in found.pairs), name
        assert (found.unmatched, found.not_joined) == ((), ()), name
        assert campaigns.read(name).runs[0].numbers["images_per_second"] > 0


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


def test_campaigns_that_share_no_session_are_said_to_be_measured_apart_and_checked_all_the_same():
    def of(session, steps):
        runs = measured(rates(steps))
        return [dataclasses.replace(run, session=session) for run in runs]

    together, apart = (compared([of("s1", 0)], [of(name, -2)]) for name in ("s1", "s2"))
    for found in (together, apart):
        page = comparison_page.comparison_page(found)
        told = [page_text.text(page), page_text.markdown(page), page_html.html_page(page)]
        assert [" ".join(text.split()).count("A and B were measured apart") for text in told] == (
            [0, 0, 0] if found is together else [1, 1, 1]
        )
        assert campaign_plain.comparison_values(found)["measured_apart"] == (found is apart)
    assert [pair.verdict for pair in apart.pairs] == [pair.verdict for pair in together.pairs]
    assert len(apart.regressions(["slower"])) == len(together.regressions(["slower"]))
    unknown = compared([measured(A_RATES)], [measured(rates(1))])
    assert not unknown.measured_apart


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
    assert (pair.verdict, pair.shown, loud.regressions(["slower"])) == ("undecided", False, [])
    assert pair.compared == quiet.pairs[0].compared
    words = f"others on the machine disturbed runs: 1 in {'AB'[side]}"
    assert words in " ".join(page_text.text(comparison_page.comparison_page(loud), 200).split())
    (plain,) = campaign_plain.comparison_values(loud)["combinations"]
    assert plain["ab"[side]]["disturbed"] == 1 and plain["reason"] == words


def test_disturbed_runs_are_known_from_records_and_from_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run(model="lenet5", dataset="synthetic", batch_per_device=8, steps=100)
    finish(run, 10, made_from={"code": "0"})
    place = run_record.folder(run.id) / "run.json"
    content = json.loads(place.read_text())
    del content["record_sha256"]
    for words in (None, "others used 0.98 of 2 cores"):
        content["summary"]["disturbed"] = words
        place.write_text(json.dumps({**content, "record_sha256": run_record.digest(content)}))
        (found,) = campaigns.read(tmp_path / "results").runs
        assert found.disturbed == bool(words)
        rows = [{"run_id": run.id, "status": "unstable", **run.values(), "disturbed": words}]
        for name in ("runs.parquet", "runs.json"):
            if name.endswith("json"):
                (tmp_path / name).write_text(json.dumps(rows))
            else:
                parquet_files.write(tmp_path / name, rows, table_columns.RUNS)
            (found,) = campaigns.read(tmp_path / name).runs
            assert found.disturbed == bool(words)
