"""export_runs: the runs table of what is there, while other runs are missing."""

import csv
import json
import math
import shutil
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dlbench import Error
from dlbench.analysis import run_tables
from dlbench.common import plugins
from dlbench.common.files import write_json
from dlbench.data import stores
from dlbench.log.event_fields import STATUSES
from dlbench.plan import standing
from dlbench.records import run_record
from dlbench.results import collect_runs, export_runs
from dlbench.study import config
from dlbench.tables import parquet_files, table_columns
from support.programs.in_process import dlbench
from support.runs.made_runs import SETTINGS, finish, write


@pytest.fixture
def half(study):
    """One run is ok, one out of memory, one stale, one is being trained."""
    ok, oom, stale, going = study.runs
    finish(ok, 60)
    finish(oom, 10, "oom", "no memory")
    finish(stale, 60, made_from={"code": "another"})
    write(going)
    return study


def test_what_is_there_is_exported_while_other_runs_are_missing(half, capsys):
    ok, oom, *_ = half.runs
    export_runs.export(half, "now/runs.parquet", STATUSES)
    found = parquet_files.read("now/runs.parquet", table_columns.RUNS).to_pylist()
    assert {row["run_id"]: row["status"] for row in found} == {ok.id: "ok", oom.id: "oom"}
    message = "now/runs.parquet: 2 of 4 runs, 2 without a valid result\n"
    assert capsys.readouterr().err == message
    with pytest.raises(Error, match=r"runs\.xlsx: expected a name that ends in \.csv, "):
        export_runs.export(half, "runs.xlsx", STATUSES)
    shutil.rmtree("results")
    for suffix in export_runs.WRITERS:
        export_runs.export(half, f"runs{suffix}", STATUSES)
    assert json.loads(Path("runs.json").read_text()) == []
    assert parquet_files.read("runs.parquet", table_columns.RUNS).num_rows == 0
    assert len(Path("runs.csv").read_text().splitlines()) == 1


def test_results_of_another_config_are_not_taken_for_a_study_without_any(study):
    finish(study.runs[0], 60)
    Path("results/runs", study.runs[0].id).rename("results/runs/another")
    with pytest.raises(
        Error, match=r"none of the 4 runs of test .* others in results have: is their"
    ):
        export_runs.export(study, "runs.csv", STATUSES)


def test_of_a_finished_study_it_is_the_table_that_the_workflow_makes(study):
    for run in study.runs:
        finish(run, 60)
    collect_runs.collect(study, "cpu", "tables")
    export_runs.export(study, "runs.csv", STATUSES)
    export_runs.export(study, "runs.parquet", STATUSES)
    export_runs.export_coverage(study, "coverage.csv")
    for name in ("runs.csv", "coverage.csv"):
        assert Path(name).read_bytes() == Path("tables", name).read_bytes()
    made = parquet_files.read("tables/runs.parquet", table_columns.RUNS)
    assert parquet_files.read("runs.parquet", table_columns.RUNS).equals(made)


def test_what_is_not_installed_is_not_exported(study, capsys, monkeypatch):
    monkeypatch.setattr(export_runs.skipping, "skip_reason", lambda *_: "not here")
    finish(study.runs[0], 0, "skipped", "horovod is not installed in envs/train")
    finish(study.runs[1], 0, "skipped", "needs 4 cpu devices per node")
    export_runs.export(study, "runs.csv", STATUSES)
    assert "1 of 4 runs, 3 without" in capsys.readouterr().err


def test_runs_of_some_statuses_are_exported_where_they_are_asked_for(half, capsys):
    export_runs.export(half, "runs.csv", ["oom"])
    with open("runs.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["run_id"], row["message"]) == (half.runs[1].id, "no memory")
    assert "1 of 4 runs, 1 with another status, 2 without" in capsys.readouterr().err


def test_json_is_one_object_a_run_with_the_columns_of_the_table(half):
    export_runs.export(half, "runs.json", STATUSES)
    found = json.loads(Path("runs.json").read_text(), parse_constant=pytest.fail)
    assert [list(row) for row in found] == [table_columns.RUNS.names] * 2
    (ok,) = [row for row in found if row["status"] == "ok"]
    assert ok["started_at"].startswith("2026-01-01T00:00:0")
    assert ok["top1"] is None
    assert math.isclose(
        pandas.read_json("runs.json")["images_per_second"].max(), ok["batch_per_device"] / 0.5
    )


def test_an_export_that_cannot_be_written_leaves_the_one_before(half, monkeypatch):
    export_runs.export(half, "runs.csv", STATUSES)
    before = Path("runs.csv").read_bytes()
    (run_record.folder(half.runs[3].id) / "train.jsonl").unlink()
    finish(half.runs[3], 60)

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr("pyarrow.csv.write_csv", full)
    with pytest.raises(OSError, match="no space"):
        export_runs.export(half, "runs.csv", STATUSES)
    assert Path("runs.csv").read_bytes() == before
    assert not list(Path().glob(".runs*"))


def test_coverage_says_how_every_combination_stands_also_the_stale_and_the_excluded(half, capsys):
    rule = {"batch_per_device": 16, "reason": "too big"}
    block = SETTINGS["matrix"][0] | {"batch_per_device": [8, 16, 32], "exclude": [rule]}
    made = config.study(SETTINGS | {"matrix": [block]})
    export_runs.export_coverage(made, "coverage.parquet")
    found = parquet_files.read("coverage.parquet", table_columns.COVERAGE).to_pylist()
    standing_of = {run.id: row for run in made.runs for row in found if row["run_id"] == run.id}
    assert len(found) == len(standing_of) + 1 == 5
    ok, oom, stale, going = (run.id for run in half.runs)
    reason = "code and data and environment changed since it was trained: envs/train/uv.lock"
    states = {ok: ("ok", ""), oom: ("oom", "no memory"), stale: ("stale", reason)}
    states |= {going: ("running", "")}
    for run_id, row in standing_of.items():
        assert (row["status"], row["reason"]) == states.get(run_id, ("pending", ""))
    assert found[-1]["run_id"] is None
    assert (found[-1]["status"], found[-1]["reason"]) == ("excluded", "block block: too big")
    assert capsys.readouterr().err == "coverage.parquet: 5 combinations\n"


def test_the_command_takes_the_study_the_table_and_the_file(half):
    Path("config.yaml").write_text(json.dumps(SETTINGS))
    part = SETTINGS["matrix"][0] | {"batch_per_device": 8}
    Path("part.yaml").write_text(json.dumps({"matrix": [part]}))
    finished = dlbench("export", "--output", "runs.csv", "--configfile", "part.yaml")
    assert finished.returncode == 0, finished.stderr
    ours = config.study(config.read("config.yaml", "part.yaml")).runs
    there = [run for run in half.runs[:2] if run in ours]
    assert f"runs.csv: {len(there)} of 2 runs" in finished.stderr
    dlbench("export", "--output", "c.json", "--table", "coverage")
    rows = json.loads(Path("c.json").read_text())
    assert sorted(row["status"] for row in rows) == ["ok", "oom", "running", "stale"]


def test_pictures_that_were_converted_are_not_looked_for(study, request):
    """The folder does not exist: a start would refuse it."""
    request.addfinalizer(lambda: plugins.set_user_names("datasets", "images", []))
    block = SETTINGS["matrix"][0] | {"model": "cnn12", "dataset": "photos"}
    data = SETTINGS["data"] | {"images": {"photos": {"path": "/nonexistent"}}}
    made = config.study(SETTINGS | {"matrix": [block], "data": data})
    write_json(Path("results/data/photos/manifest.json"), {"code_sha256": "of photos"})
    assert len(standing.examine(made)) == len(made.runs)
    assert export_runs.rows(made) == []
    with pytest.raises(run_record.RecordError, match="there is no record"):
        collect_runs.collect(made, "cpu", "tables")
    with pytest.raises(Error, match="/nonexistent: expected a folder"):
        stores.adopted(made)


BLOCK = SETTINGS["matrix"][0]


@pytest.fixture
def many(study):
    """Three models and strategies on a site whose name is a number."""
    blocks = [
        BLOCK | {"batch_per_device": 8},
        BLOCK | {"model": "cnn12", "batch_per_device": 8},
        BLOCK | {"strategy": "mirrored", "batch_per_device": 8, "name": "other"},
    ]
    made = config.study(SETTINGS | {"matrix": blocks, "site": SETTINGS["site"] | {"name": "01"}})
    for run in made.runs:
        finish(run, 60)
    return made


@pytest.fixture
def exported(many):
    export_runs.export_dataset(many, "all")
    return Path("all")


def test_folders_are_named_by_site_model_and_strategy(exported):
    found = sorted(str(path.relative_to(exported)) for path in exported.rglob("*.parquet"))
    assert found == sorted(
        f"{table}/site=01/model={model}/strategy={strategy}/part-0.parquet"
        for table in ("runs", "steps", "evals", "samples", "metrics")
        for model, strategy in (("cnn12", "single"), ("lenet5", "single"), ("lenet5", "mirrored"))
    )


def test_pyarrow_reads_every_row_with_units_and_text_as_text(exported, many):
    steps = export_runs.open_table(exported, "steps").to_table()
    assert steps.num_rows == 100 * len(many.runs)
    assert steps.schema.field("step_time_s").metadata[b"unit"] == b"s"
    assert set(steps["site"].to_pylist()) == {"01"}
    runs = export_runs.open_table(exported, "runs").to_table().to_pylist()
    assert {row["run_id"] for row in runs} == {run.id for run in many.runs}
    assert set(runs[0]) == set(table_columns.RUNS.names)
    run = many.runs[0]
    own = run_tables.run_table(run_record.folder(run.id), "steps")
    found = steps.filter(pa.compute.equal(steps["run_id"], run.id))
    assert found.select(own.column_names).to_pylist() == own.to_pylist()


def test_duckdb_reads_it_and_joins_its_tables(exported, many):
    files = "read_parquet('all/{}/**/*.parquet', hive_partitioning = true, {})"
    typed = "hive_types_autocast = false"
    found = duckdb.sql(
        "select r.model, r.strategy, r.site, count(*), avg(s.step_time_s)"
        f" from {files.format('steps', typed)} s join {files.format('runs', typed)} r"
        " using (run_id) where not s.warm_up group by all order by all"
    ).fetchall()
    assert found == [
        ("cnn12", "single", "01", 2 * 99, 0.5),
        ("lenet5", "mirrored", "01", 2 * 99, 0.5),
        ("lenet5", "single", "01", 2 * 99, 0.5),
    ]


def test_polars_and_pandas_read_it(exported, many):
    texts = dict.fromkeys(export_runs.PARTITION, polars.String)
    frame = polars.scan_parquet("all/steps/", hive_partitioning=True, hive_schema=texts)
    found = frame.filter(polars.col("model") == "cnn12").collect()
    assert (found.height, found["step_time_s"].mean()) == (2 * 100, 0.5)
    assert set(found["site"]) == {"01"}
    frame = export_runs.open_table(exported, "runs").to_table().to_pandas()
    assert (frame["site"] == "01").all()
    plain = pandas.read_parquet(exported / "runs")
    assert len(plain) == len(many.runs)
    assert set(plain["model"].astype(str)) == {"cnn12", "lenet5"}
    assert plain.attrs["units"]["images_per_second"] == "items/s"
    assert pandas.read_parquet(exported / "steps").attrs["units"]["step_time_s"] == "s"


def test_names_with_signs_come_back_as_they_are(study):
    named = "a/b = 100 %, Müller"
    made = config.study(SETTINGS | {"site": SETTINGS["site"] | {"name": named}})
    finish(made.runs[0], 60)
    export_runs.export_dataset(made, "all")
    rows = export_runs.open_table("all", "runs").to_table()
    assert rows["site"].to_pylist() == [named]
    query = "select site from read_parquet('all/runs/**/*.parquet', hive_partitioning = true)"
    assert duckdb.sql(query).fetchall() == [(named,)]
    assert polars.scan_parquet("all/runs/").collect()["site"].to_list() == [named]


@pytest.mark.parametrize(
    ("rows", "runs", "groups"), [(100_000, 500, 1), (150, 500, 1), (1, 500, 2), (9**9, 1, 2)]
)
def test_small_runs_share_a_row_group(many, monkeypatch, rows, runs, groups):
    monkeypatch.setattr(export_runs, "ROW_GROUP", rows)
    monkeypatch.setattr(export_runs, "MAX_WAITING", runs)
    export_runs.export_dataset(many, "all")
    path = Path("all/steps/site=01/model=cnn12/strategy=single/part-0.parquet")
    assert pq.read_metadata(path).num_row_groups == groups
    steps = pq.read_table(path)
    own = [run.id for run in many.runs if run.model == "cnn12"]
    assert steps["run_id"].to_pylist() == [run_id for run_id in sorted(own) for _ in range(100)]


def test_the_command_exports_the_results_that_stand_and_says_how_many(study):
    Path("config.yaml").write_text(json.dumps(SETTINGS))
    assert dlbench("export", "--output", "all").returncode == 0
    assert export_runs.open_table("all", "steps").to_table().num_rows == 0
    ok, oom, stale, going = study.runs
    finish(ok, 60)
    finish(oom, 10, "oom", "no memory")
    finish(stale, 60, made_from={"code": "another"})
    write(going)
    finished = dlbench("export", "--output", "all")
    assert finished.stderr == "all: 2 of 4 runs, 2 without a valid result\n"
    runs = export_runs.open_table("all", "runs").to_table().to_pylist()
    assert {row["run_id"]: row["status"] for row in runs} == {ok.id: "ok", oom.id: "oom"}
    assert (run_record.folder(ok.id) / "steps.parquet").is_file()


def test_an_earlier_export_is_replaced_and_anything_else_is_refused(exported, many):
    (exported / "runs" / "left.txt").touch()
    export_runs.export_dataset(many, exported)
    assert not (exported / "runs" / "left.txt").exists()
    assert not list(Path().glob(".all*"))
    Path("mine").mkdir()
    with pytest.raises(Error, match="mine exists and is no exported dataset"):
        export_runs.export_dataset(many, "mine")
    with pytest.raises(Error, match="no table of an exported dataset"):
        export_runs.open_table("mine", "runs")


def test_an_export_that_fails_leaves_the_earlier_one(exported, many, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    with monkeypatch.context() as broken, pytest.raises(OSError, match="disk full"):
        broken.setattr(run_tables, "run_table", fail)
        export_runs.export_dataset(many, exported)
    assert export_runs.open_table(exported, "runs").to_table().num_rows == len(many.runs)
    assert not list(Path().glob(".all*"))
