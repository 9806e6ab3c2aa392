"""The report's content and its file: tables, reasons, caveats, escaping, determinism."""

import json
import math
import os
import re
import subprocess
import sys
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from markupsafe import escape

from dlbench.analysis import estimates
from dlbench.machine import facts
from dlbench.records import run_record
from dlbench.report import build_report, report_tables, sentences
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


def test_the_table_has_means_intervals_and_runs_by_condition(tmp_path):
    rows = [
        made_tables.run(repeat=repeat, devices=devices)
        for devices in (1, 2)
        for repeat in (1, 2, 3)[: 3 if devices == 1 else 1]
    ]
    values = {1: (100, 110, 121), 2: (50,)}
    for row in rows:
        value = values[row["devices"]][row["repeat"] - 1]
        metric = {"name": "busbw", "value": value, "unit": "GB/s", "better": "higher"}
        row["metrics"] = [{"run_id": row["run_id"], **metric}]
    none = made(tmp_path, [row | {"metrics": []} for row in rows])
    assert "metrics" not in [table.name for table in none.tables]
    found = made(tmp_path, rows)
    assert column(found, "metric", "metrics").values == ["busbw", "busbw"]
    assert column(found, "mean", "metrics").values == [110, 50]
    assert column(found, "runs", "metrics").values == [3, 1]
    # The logarithms lie ln 1.1 apart: error 0.0953102 / sqrt(3), t of 2 degrees 4.302653.
    (low, high), unknown = column(found, "95 % interval", "metrics").values
    assert (low, high) == pytest.approx((110 / 1.267142, 110 * 1.267142), rel=1e-5)
    assert unknown is None


def test_metrics_in_which_runs_do_not_agree_are_named(tmp_path):
    rows = [made_tables.run(repeat=repeat) for repeat in (1, 2)]
    for row, unit in zip(rows, ("GB/s", "MB/s"), strict=True):
        metric = {"name": "busbw", "value": 1.0, "unit": unit, "better": ""}
        other = metric | {"name": "latency", "unit": "us"}
        row["metrics"] = [{"run_id": row["run_id"], **one} for one in (metric, other)]
    found = made(tmp_path, rows)
    table = next(table for table in found.tables if table.name == "metrics")
    assert table.rows == 1 and "Left out" in table.description
    assert "busbw: unit is 'GB/s' in" in table.description


def keep_record(folder, row, provenance):
    """The record of a run, which has its provenance and nothing else."""
    path = folder / "runs" / row["run_id"] / "run.json"
    path.parent.mkdir(parents=True)
    rest = {key: kind() for key, kind in run_record.KINDS.items() if not key.endswith("version")}
    run_record.write(path, rest | {"provenance": provenance}, [])


def test_the_machine_is_shown_as_the_records_of_its_runs_have_it(tmp_path):
    rows = [made_tables.run(repeat=repeat) for repeat in (1, 2)]
    hardware = facts.gather()["hardware"] | {
        "gpus": {"driver": "550.54", "cuda_driver": "12.4", "kinds": []},
        "infiniband": [{"rate": "200 Gb/sec (4X HDR)", "link_layer": "InfiniBand"}] * 2,
    }
    cpu = {"model": "EPYC", "sockets": 2, "cores": 128, "threads": 256}
    hardware["cpu"] |= cpu | {"governors": ["performance"]}
    software = {"os": "Debian 12", "kernel": "6.1"}
    known = {"hardware": {"a": hardware}, "software": {"b": software}}
    for row, provenance in zip(rows, (known, {"platform": "of before"}), strict=True):
        keep_record(tmp_path, row, provenance)
    shown = dict(made(tmp_path, rows).machine)
    assert shown["processor"] == [
        ("EPYC, 2 sockets, 128 cores, 256 threads, governor performance", 1)
    ]
    assert shown["GPU driver"] == [("550.54, CUDA 12.4", 1)]
    assert shown["network"] == [("200 Gb/sec (4X HDR) (InfiniBand)", 1)]
    assert shown["operating system"] == [("Debian 12", 1)]
    # Of a virtual machine, whose memory is not known, that at the time is shown.
    known["present"] = {"memory_bytes": 24_684_084 * 1024}
    for row, gib, expected in zip(rows, (512, None), ("512 GiB", "24 GiB"), strict=True):
        hardware["memory"] = {"gib": gib}
        row = row | {"run_id": f"with {gib}"}
        keep_record(tmp_path, row, known)
        assert build_report.recorded_facts(tmp_path / "runs" / row["run_id"])["memory"] == expected


def test_caveats_name_other_hardware_changed_software_and_repeats_that_differ(tmp_path):
    difference = "hardware gpus driver 560.35, not 550.54"
    rows = [
        made_tables.run(
            repeat=1, hardware_sha256="a" * 64, software_sha256="c" * 64, release="0.1.0+sha256.aa"
        ),
        made_tables.run(
            repeat=2, hardware_sha256="b" * 64, software_sha256="d" * 64, repeats_differ=difference
        ),
        made_tables.run(repeat=3, release="0.1.0+sha256.bb.changed"),
        made_tables.run(environment="train-b", software_sha256="e" * 64),
    ]
    caveats = "\n".join(made(tmp_path, rows).caveats)
    assert f"Runs are of 2 fingerprints of hardware: {'a' * 12}, {'b' * 12}." in caveats
    assert "2 runs: of environment train (bare), whose software changed between them." in caveats
    assert "train-b" not in caveats
    releases = "0.1.0+sha256.aa, 0.1.0+sha256.bb.changed"
    assert f"Runs are of 2 releases of dlbench: {releases}." in caveats
    assert "1 run: of files that differ from their commit or release" in caveats
    assert f"1 run: unlike the first repeat of their combination ({difference})." in caveats


def test_caveats_name_single_runs_borrowed_bases_and_other_versions(tmp_path):
    rows = made_tables.study(devices=[1, 2], repeats=1)
    rows[1]["framework_version"] = "2.22.0"
    rows.append(made_tables.run(repeat=9, status="unstable", batch_per_device=8))
    caveats = "\n".join(made(tmp_path, rows).caveats)
    assert "3 combinations: measured by a single run" in caveats
    assert "1 run: unstable" in caveats
    assert "Runs are of 2 versions: tensorflow 2.21.0, tensorflow 2.22.0." in caveats
    assert "point and base differ in framework_version" in caveats


def test_runs_that_other_processes_disturbed_are_no_part_of_those_that_stalled(tmp_path):
    words = "others used 0.08 of 2 cores"
    rows = [
        made_tables.run(repeat=i, status="unstable", disturbed=words if i < 3 else None)
        for i in (1, 2, 3)
    ]
    caveats = "\n".join(made(tmp_path, rows).caveats)
    assert (
        "2 runs: disturbed; no statement about speed that uses them is labelled shown (other "
        "processes used 0.08 of 2 cores)."
    ) in caveats
    assert "1 run: unstable, not disturbed; steps stalled, so" in caveats
    quota = [made_tables.run(repeat=i, quota_throttled_percent=p) for i, p in ((1, 4), (2, 35))]
    assert (
        "1 run: stopped by a quota of CPU time in up to 35 % of its periods; their rates are those "
        "of the quota."
    ) in made(tmp_path, quota).caveats


def test_a_report_says_which_runs_contradict_themselves_and_has_no_mean_of_them(tmp_path):
    reason = "images_per_second is 512, global_batch / step_time_mean_s is 64 / 1 s = 64"
    rows = [made_tables.run(repeat=1), made_tables.run(repeat=2, contradicts=reason)]
    report = made(tmp_path, rows)
    words = "1 run: numbers contradict one another, so that nothing is compared with them"
    assert f"{words} ({reason})." in report.caveats
    (rate,) = column(report, "images per second", of="results").values
    assert rate == pytest.approx(rows[0]["images_per_second"], rel=1e-3)


def test_what_frameworks_do_in_their_own_way_is_said_where_they_are_compared():
    row = {"field": "framework", "base": "tensorflow", "framework": "jax"}
    (sentence,) = sentences.caveats([], [], [row, row], [], [])
    assert sentence.startswith("Frameworks differ by design (docs/training.md): jax compiles ")
    assert "; tensorflow runs a graph of operations" in sentence
    alone = {"field": "strategy", "base": "single", "framework": "jax"}
    another = {"field": "framework", "base": "mxnet", "framework": "tensorflow"}
    assert sentences.caveats([], [], [alone, another], [], []) == []


def test_versions_are_named_in_which_compared_environments_differ(tmp_path):
    rows = []
    for environment, version in (("train", "2.18.1"), ("train-latest", "2.21.0"), ("old", "1.0")):
        rows.append(made_tables.run(environment=environment))
        known = {"python": "3.11.7", "tensorflow": version, "keras": "3.15.1"}
        keep_record(tmp_path, rows[-1], {"hardware": {}, "versions": known})
    compared = {"field": "environment", "base": "train", "environment": "train-latest"}
    recorded = [build_report.recorded_facts(tmp_path / "runs" / row["run_id"]) for row in rows]
    said = sentences.caveats(rows, [], [compared, compared], [], recorded)
    (sentence,) = (one for one in said if one.startswith("Environments"))
    assert sentence == "Environments differ in tensorflow: train 2.18.1; train-latest 2.21.0."
    others = sentences.caveats(rows, [], [compared | {"field": "strategy"}], [], recorded)
    assert others == [one for one in said if one != sentence]


def test_frameworks_that_loaded_other_versions_of_cuda_are_named_where_they_are_compared(tmp_path):
    rows, frameworks = [], {"tensorflow": "12.5", "jax": "12.9", "pytorch": "13.0"}
    for framework, version in frameworks.items():
        rows.append(made_tables.run(framework=framework, device_kind="gpu"))
        known = {"hardware": {}, "libraries": {"cudart": version, "cudnn": "9.10"}}
        keep_record(tmp_path, rows[-1], known)
    report = made(tmp_path, rows)
    on_cuda = [caveat for caveat in report.caveats if "CUDA" in caveat]
    assert on_cuda == []  # nobody compares them
    assert dict(report.machine)["CUDA runtime"] == [("12.5", 1), ("12.9", 1), ("13.0", 1)]
    row = {"field": "framework", "base": "tensorflow", "framework": "jax", "base_flags": ""}

    def on_cuda_of(versions):
        recorded = [{"CUDA runtime": version} for version in versions]
        return [w for w in sentences.caveats(rows, [], [row], [], recorded) if "CUDA" in w]

    assert on_cuda_of(frameworks.values()) == [
        "Frameworks have loaded different CUDA runtimes: jax 12.9; tensorflow 12.5."
    ]
    assert on_cuda_of(("12.9", "12.9", "13.0")) == []


def test_published_and_imported_rows_say_where_they_are_from(tmp_path):
    rows = made_tables.study(devices=[1, 2])
    published = {"timing_source": "published", "source": "a paper, p. 3"}
    rows += made_tables.study(devices=[1, 2], repeats=1, **published)
    rows += made_tables.study(devices=[4], timing_source="keras_csv", source="log.csv")
    rows += made_tables.study(devices=[8], repeats=1, timing_source="keras_csv", site="here")
    found = made(tmp_path, rows)
    assert "Measured on here" in found.lead and "Beside them: 3 imported runs and " in found.lead
    caveats = "\n".join(found.caveats)
    published = "2 rows: published, not measured here; no finding rests on them (a paper, p. 3)."
    assert published in caveats
    assert "3 runs: imported from logs of keras_csv (log.csv)." in caveats
    assert "1 run: timed by the program itself, in a log of keras_csv." in caveats
    assert set(column(found, "source").values) == {None, "a paper, p. 3", "log.csv"}
    assert column(found, "metric", "published").values
    assert all("published" not in finding.text for finding in found.findings)


def test_a_table_that_was_put_beside_the_others_is_shown_with_its_units(tmp_path):
    made_tables.write(tmp_path, made_tables.study(devices=[1, 2]), steps_each=0)
    speed = pa.field("speed", pa.float64(), metadata={"unit": "items/s", "description": "so fast"})
    schema = pa.schema([pa.field("who", pa.string()), speed])
    rows = [{"who": "A", "speed": 1.5}, {"who": "B", "speed": 2.5}]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "from_papers.parquet")
    found = build_report.read(tmp_path, tmp_path / "runs", tmp_path, ())
    assert table(found, "from_papers").heading == "From papers"
    shown = column(found, "speed", "from_papers")
    assert (shown.unit, shown.note, shown.values) == ("items/s", "so fast", [1.5, 2.5])
