"""export_runs: one dataset of all runs, which pyarrow, pandas, polars and DuckDB read alike."""

import json
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dlbench import Error
from dlbench.analysis import run_tables
from dlbench.records import run_record
from dlbench.results import export_runs
from dlbench.study import config
from dlbench.tables import table_columns
from support.programs.in_process import dlbench
from support.runs.made_runs import SETTINGS, finish, write

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
