"""The report's content and its file: tables, reasons, caveats, escaping, determinism."""

import json
import math
import os
import re
import subprocess
import sys
from datetime import datetime, timezone

import pytest
from markupsafe import escape

from dlbench.analysis import estimates
from dlbench.report import build_report, report_tables
from dlbench.tables import parquet_files
from support.machines.paths import REPOSITORY
from support.programs.in_process import dlbench
from support.results import made_tables
from support.results.made_reports import column, covered, made, table

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"' & \u2028"


@pytest.mark.one_in(5)
@pytest.mark.parametrize("case", made_tables.CASES)
def test_every_edge_case_gives_a_page_and_the_same_twice(tmp_path, case):
    rows = made_tables.CASES[case]()
    found = made(tmp_path, rows)
    page = build_report.html_page(found)
    assert page == build_report.html_page(
        build_report.read(tmp_path, tmp_path / "runs", tmp_path, ())
    )
    own = [row for row in rows if not row.get("sentinel")]
    assert sum(count for status, count in found.statuses if status != "excluded") == len(own)
    assert len(found.findings) <= 3
    assert "nan" not in json.dumps([vars(finding) for finding in found.findings])


def test_results_have_a_row_a_combination_with_the_mean_of_its_runs(tmp_path):
    rows = [made_tables.run(repeat=i, images_per_second=v) for i, v in ((1, 90.0), (2, 110.0))]
    rows += made_tables.failing([made_tables.run(repeat=3)], lambda row: True)
    rows.append(made_tables.run(devices=2, images_per_second=200.0))
    found = made(tmp_path, rows)
    assert column(found, "images per second", "results").values == [99.4987, 200]
    assert column(found, "runs", "results").values == [2, 1]
    assert column(found, "failed or unstable runs", "results").values == ["1 oom", None]
    interval = column(found, "95 % interval", "results").values
    assert interval[1] is None
    assert interval[0][0] < 99.4987 < interval[0][1]


def test_columns_have_the_units_notes_kinds_and_values_of_the_schema(tmp_path):
    rows = made_tables.study(devices=[1, 2], xla=[False, True], repeats=1)
    values = {"compile_s": [1, 2, 3, 4], "final_loss": [math.inf, 0.5, 0.5, 0.5]}
    values["peak_memory_bytes"] = [2**20 * n for n in (1, 2, 3, 4)]
    rows = [row | {k: v[i] for k, v in values.items()} for i, row in enumerate(rows)]
    found = made(tmp_path, rows)
    assert column(found, "step time median").unit == "s"
    rate = column(found, "images per second")
    note = "items of the measured steps over their time on the slowest rank"
    assert (rate.unit, rate.note) == ("items/s", note)
    # The time of compiling is not called after the switch of a framework.
    assert sorted(column(found, "compile").values) == [1, 2, 3, 4]
    memory = column(found, "peak memory")
    assert (memory.unit, sorted(memory.values)) == ("MiB", [1, 2, 3, 4])
    assert "inf" in column(found, "final loss").values
    assert re.search(r'"inf",0\.5|0\.5,"inf"', build_report.html_page(found))
    kinds = {c.name: c.kind for c in table(found, "results").columns}
    assert kinds["XLA"] == "bool" and kinds["devices"] == "number"
    # What all rows agree in is said once, and what is empty is not.
    runs = table(found, "runs")
    assert ("model", "resnet50") in runs.constant
    names = [c.name for c in runs.columns]
    assert "model" not in names and "perplexity" not in names
    assert "status" in names  # though all are ok
    names = next(c for c in report_tables.plain(runs)["columns"] if c["name"] == "run id")
    assert [names["levels"][code] for code in names["codes"]] == column(found, "run id").values


def test_the_summary_rounds_as_the_script_does_what_the_page_has_with_six_digits():
    shown = {13749.46: "13\u2009750", 13749.4: "13\u2009749", 325.678: "325.7", math.inf: "inf"}
    assert {rate: build_report._items(rate) for rate in shown} == shown


def test_reasons_that_differ_in_numbers_are_one_and_the_commonest_is_first(tmp_path):
    coverage = [
        covered("a", "failed", "RuntimeError: no!"),
        covered("b", "oom", "needs 12 GiB"),
        covered("c", "oom", "needs 48.5 GiB"),
        covered("d", "stale", "code changed since it was trained; it was ok"),
        covered("e", "skipped", "Horovod is missing"),
        covered("f", "ok"),
    ]
    found = made(tmp_path, [], coverage=coverage)
    failures = [(r.status, r.text, r.runs) for r in found.failures]
    assert failures == [("oom", "needs 12 to 48.5 GiB", 2), ("failed", "RuntimeError: no!", 1)]
    assert [r.example for r in found.stale] == ["run d"]
    assert [r.text for r in found.left_out] == ["Horovod is missing"]
    page = build_report.html_page(found)
    assert "; example: run b<" in page and "; run: run a<" in page
    assert found.lead == (
        "1 of 5 runs completed, 1 out of date (code, data or environment changed), 1 failed, "
        "2 out of memory, 1 more skipped."
    )
    # Steps that stalled are said, and imports are not counted as its own.
    coverage = [covered("a", "ok"), covered("b", "unstable", "some"), covered("c", "imported")]
    found = made(tmp_path, [], coverage=coverage)
    assert found.lead.startswith(
        "2 of 2 runs completed, 1 of them unstable (steps stalled, or they were disturbed)."
    )
    assert found.statuses == [("ok", 1), ("unstable", 1), ("imported", 1)]


def test_the_highest_throughputs_stand_in_the_summary(tmp_path):
    rows = made_tables.study(batch_per_device=[16, 64]) + made_tables.study(mode="forward")
    rows += made_tables.study(model="lenet5", repeats=1, mode="forward")
    rows += made_tables.study(timing_source="published", scale=100, repeats=1)
    found = made(tmp_path, rows)
    first, second = found.fastest
    best = [r["images_per_second"] for r in rows[3:6]]
    assert first[0].startswith("resnet50, synthetic, batch 64")
    assert first[1] == estimates.mean(best)
    assert second[0].startswith("lenet5, synthetic") and second[1].runs == 1
    assert second[0].endswith(", forward") and "forward" not in first[0]
    summary = build_report.html_page(found).partition('id="coverage"')[0]
    assert f"<b>{first[1].value:.4g}" in summary and "none of one run" in summary


def test_the_highest_throughputs_are_called_as_in_the_table_and_none_is_left_out(tmp_path):
    models = ["alexnet", "resnet50", "vgg16", "lenet5", "cnn12"]
    rows = made_tables.study(model=models, environment=["train", "train-latest"])
    failed = made_tables.study(model="resnet20", status="failed", images_per_second=None)
    found = made(tmp_path, rows + failed)
    names = [name for name, *_ in found.fastest]
    assert len(names) == len(models)
    assert set(names) <= set(column(found, "combination", "results").values)
    assert all("environment train" in name for name in names)  # which of the two is the faster
    assert found.without_rate == ["resnet20, synthetic"]
    summary = build_report.html_page(found).partition('id="coverage"')[0]
    assert all(name in summary for name in names) and "<summary>1 more</summary>" in summary
    assert "no run of them completed: resnet20, synthetic." in summary


def test_combinations_are_called_by_what_tells_them_apart(tmp_path):
    rows = made_tables.study() + made_tables.study(site="there", scale=2)
    found = made(tmp_path, rows)
    names = ["here: resnet50, synthetic, batch 64", "there: resnet50, synthetic, batch 64"]
    assert column(found, "combination", "results").values == names
    assert sorted(name for name, *_ in found.fastest) == names
    alone = made(tmp_path, made_tables.study())
    assert column(alone, "combination", "results").values == ["resnet50, synthetic, batch 64"]
    rows = [
        row | {"steps": row["batch_per_device"], "learning_rate": row["batch_per_device"] / 100}
        for row in made_tables.study(batch_per_device=[16, 32])
    ]
    excluded = {"batch_per_device": 32, "dataset": "digits", "epochs": 1, "model": "vgg16"}
    excluded = {"combination": json.dumps(excluded), "status": "excluded", "reason": "x: too big"}
    coverage = [covered(row["run_id"], "ok") for row in rows]
    found = made(tmp_path, rows, coverage=[*coverage, excluded])
    names = [name for name, _ in found.groups]
    assert names[:2] == ["resnet50, synthetic, batch 16", "resnet50, synthetic, batch 32"]
    (reason,) = found.left_out
    assert reason.example == "vgg16, digits, batch 32, 1 epoch"


def test_coverage_is_grouped_until_it_can_be_taken_in(tmp_path):
    sizes = {"devices": [1, 2, 4, 8, 16], "batch_per_device": [16, 32, 64]}
    switches = {"xla": [False, True], "precision": ["float32", "float16"]}
    rows = made_tables.study(**sizes, **switches, repeats=2)
    found = made(tmp_path, rows)
    assert 1 < len(found.groups) <= build_report.MAX_GROUPS
    assert sum(sum(counts.values()) for _, counts in found.groups) == len(rows)


def test_dates_are_those_of_the_runs(tmp_path):
    at = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    dates = {"started_at": at, "ended_at": at.replace(day=2)}
    facts = dict(made(tmp_path, [made_tables.run() | dates]).facts)
    assert facts["Dates"] == "2026-03-01 to 2026-03-02 (UTC)"
    assert "Sessions" not in facts and facts["Scale"] == "1 GPU on 1 node"


def test_whatever_is_in_the_tables_is_text_in_the_page(tmp_path):
    names = ("study", "site", "model", "device_model", "framework_version", "learning_gate",
             "strategy", "notes", "source", "timing_source")  # fmt: skip
    rows = [
        made_tables.run(repeat=i, precision=precision, **dict.fromkeys(names, EVIL))
        for i in (1, 2, 3)
        for precision in ("float32", EVIL)
    ]
    coverage = [covered(EVIL, "failed", EVIL), covered("b", "stale", EVIL), covered("c", EVIL)]
    found = made(tmp_path, rows, coverage=coverage)
    page = build_report.html_page(found)
    assert page.count("<script>") == 1
    assert len(re.findall(r"<script\b", page)) == 1 + len(found.tables)
    assert "<img src=x" not in page and "alert(1)</script>" not in page
    assert escape(EVIL) in page
    for block in re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL):
        assert json.loads(block)["rows"]


def test_the_page_allows_its_own_style_and_script_and_nothing_else(tmp_path):
    page = build_report.html_page(made(tmp_path, made_tables.study(devices=[1, 2])))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page)
    assert " style=" not in page and " onclick=" not in page


def test_the_report_links_the_traces_that_are_there(tmp_path):
    rows = made_tables.study(devices=[1, 2], repeats=1)
    for row in rows:
        row["trace_file"] = "trace.json.gz"
    place = tmp_path / "runs" / rows[0]["run_id"]
    place.mkdir(parents=True)
    (place / "trace.json.gz").touch()
    found = made(tmp_path, rows)
    page = build_report.html_page(found)
    links = re.findall(r'(?:src|href)="(?!#|data:)([^"]*)"', page)
    assert links == [f"runs/{rows[0]['run_id']}/trace.json.gz"]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    rows = made_tables.study(devices=[1, 2, 4])
    return folder, made(folder, rows, ("scaling", "overhead"))


def test_figures_have_their_titles_captions_and_sizes(drawn):
    _, found = drawn
    scaling, overhead = found.figures
    assert scaling.title == "Throughput and parallel efficiency against the number of devices"
    assert scaling.uri.startswith("data:image/svg+xml,")
    assert scaling.width > scaling.height > 0
    page = build_report.html_page(found)
    assert "<em>Equivalent</em>: two one-sided tests" in page
    assert 'id="figure-overhead"' in page and overhead.name == "overhead"
    assert found.margin == 0.01 and "within the margin of\n1 %." in page


def test_a_figure_that_is_large_becomes_a_picture(drawn, monkeypatch):
    folder, _ = drawn
    whole = build_report.figure("scaling", folder / "figures")
    monkeypatch.setattr(build_report, "MAX_SVG_BYTES", 1000)
    picture = build_report.figure("scaling", folder / "figures")
    assert picture.uri.startswith("data:image/webp;base64,")
    assert (picture.width, picture.height) == (whole.width, whole.height)


@pytest.mark.ci
def test_the_program_writes_the_same_bytes_whatever_the_order_of_hashes(drawn):
    folder, found = drawn
    command = [sys.executable, REPOSITORY / "workflow_scripts/dlbench", "report"]
    command += ["--tables", ".", "--runs", "runs", "--figures-folder", "figures"]
    command += ["--figures", "scaling", "overhead", "--output", "a.html"]
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    subprocess.run(command, check=True, cwd=folder, env=environment)
    page = (folder / "a.html").read_text()
    assert page == build_report.html_page(found)
    assert str(folder) not in page


def test_what_is_missing_is_named_and_no_page_is_written(drawn, tmp_path):
    output = tmp_path / "page.html"
    for arguments, message in (
        (["--tables", "nowhere"], "runs.parquet: there is no such table"),
        (["--figures", "scaling", "--figures-folder", "nowhere"], "scaling.svg"),
    ):
        finished = dlbench("report", "--tables", drawn[0], *arguments, "--output", output)
        assert finished.returncode == 2 and message in finished.stderr
    assert not output.exists()


@pytest.mark.parametrize("name", ["runs", "nodes", "speedups", "from_papers"])
def test_a_damaged_or_empty_table_is_named_with_what_makes_it_again(tmp_path, name):
    folder = tmp_path / "results" / "tables"
    folder.mkdir(parents=True)
    made_tables.write(folder, [made_tables.run()], steps_each=0)
    path = folder / f"{name}.parquet"
    whole = (folder / "runs.parquet").read_bytes()
    known = "snakemake tables` makes it again" if name != "from_papers" else "from its origin"
    for content in (b"", whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:]):
        path.write_bytes(content)
        with pytest.raises(parquet_files.TableError, match=rf"{path} .*{known}$"):
            build_report.read(folder, tmp_path, tmp_path, ())
