"""export_runs: the runs table of what is there, while other runs are missing."""

import csv
import json
import math
import shutil
from pathlib import Path

import pandas
import pytest

from dlbench import Error
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
