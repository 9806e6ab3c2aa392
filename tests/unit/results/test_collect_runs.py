"""collect_runs: the tables of a study, from logs that were written and records that were read."""

import csv
import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dlbench import Error
from dlbench.analysis import frames, measures, run_tables
from dlbench.common.files import sha256
from dlbench.log import event_log
from dlbench.records import parse_run, run_record
from dlbench.records.run_record import RecordError
from dlbench.results import collect_runs, run_rows
from dlbench.study.runs import FIELDS, Run
from dlbench.tables import parquet_files, table_columns
from support.results import made_baselines
from support.runs.collected_runs import PLAIN, PROCESS, finished, study
from support.runs.collected_runs import folder as folder
from support.studies.found_batches import TRIES, write_found

LEARNS = {"name": "learns", "model": "lenet5", "dataset": "digits", "batch_per_device": 8}
LEARNS |= {"epochs": 1, "must_reach": {"top1": 0.9, "final_loss": 3}}


def collected(made, name, schema):
    collect_runs.collect(made, "cpu", "tables")
    return parquet_files.read(f"tables/{name}.parquet", schema).to_pylist()


@pytest.mark.parametrize(
    ("top1", "gate"), [(0.95, "reached"), (0.85, "missed: top1 0.85, expected at least 0.9")]
)
def test_the_gate_stands_in_the_tables_and_changes_no_status(folder, capsys, top1, gate):
    made = study(LEARNS, PLAIN)
    learns = next(run for run in made.runs if run.epochs)
    plain = next(run for run in made.runs if run.steps)
    finished(learns, top1=top1)
    finished(plain)
    rows = {row["run_id"]: row for row in collected(made, "runs", table_columns.RUNS)}
    gates = {run_id: row["learning_gate"] for run_id, row in rows.items()}
    assert gates == {learns.id: gate, plain.id: None}
    assert {row["status"] for row in rows.values()} == {"ok"}
    row, reached = rows[learns.id], gate == "reached"
    assert (row["top1"], row["final_loss"]) == (top1, 2.0)
    # By the clock and by the steps.
    times = row["time_to_accuracy_s"], row["training_time_to_accuracy_s"]
    assert times == ((1.2, 1.0) if reached else (None, None))
    shown = "" if reached else gate
    with open("tables/coverage.csv", newline="") as file:
        reasons = {row["run_id"]: row["reason"] for row in csv.DictReader(file)}
    assert reasons == {learns.id: shown, plain.id: ""}
    assert capsys.readouterr().err == ("" if reached else f"{learns.label()}: {gate}\n")
    made = study(LEARNS | {"must_reach": {"top1": 0.8}}, PLAIN)  # judged anew without training
    gates = [row["learning_gate"] for row in collected(made, "runs", table_columns.RUNS)]
    assert sorted(gates, key=str) == [None, "reached"]


def test_why_a_run_failed_comes_before_what_it_missed_and_it_has_no_time_to_its_score():
    for top1, missed in ((0.5, "0.5"), (float("nan"), "not evaluated"), (0.95, None)):
        made = study(LEARNS)
        finished(made.runs[0], top1=top1, status="failed", message="no memory")
        (row,) = collected(made, "coverage", table_columns.COVERAGE)
        reason = f"no memory; missed: top1 {missed}, expected at least 0.9"
        assert (row["status"], row["reason"]) == ("failed", reason if missed else "no memory")
        (row,) = parquet_files.read("tables/runs.parquet", table_columns.RUNS).to_pylist()
        assert (row["time_to_accuracy_s"], row["training_time_to_accuracy_s"]) == (None, None)
        (row,) = parquet_files.read("tables/evals.parquet", table_columns.EVALS).to_pylist()
        assert row["top1"] == pytest.approx(top1, nan_ok=True)
        shutil.rmtree("results")


def test_a_clock_that_differs_from_the_steps_is_said_and_stands_in_the_tables(capsys):
    made = study(LEARNS | {"must_reach": {"final_loss": 3}})
    run = made.runs[0]
    # One epoch of 4 items in 1 s, by the clock; the steps say two batches of 8.
    finished(run, start={"records": 4})
    (row,) = collected(made, "runs", table_columns.RUNS)
    assert (row["images_per_second"], row["epochs_images_per_second"]) == (16.0, 4.0)
    message = "-75.0 %: epochs x images / time is 4 items/s, the steps say 16"
    assert row["epochs_check"].startswith(message)
    (covered,) = parquet_files.read("tables/coverage.parquet", table_columns.COVERAGE).to_pylist()
    assert covered["reason"] == f"throughput by the clock differs by {row['epochs_check']}"
    assert message in capsys.readouterr().err


def test_energy_per_image_and_the_synthetic_partner_are_columns():
    made = study(LEARNS | {"must_reach": {"final_loss": 3}}, PLAIN)
    for run in made.runs:
        finished(run, energy_j=8.0)
    learns, plain = sorted(
        collected(made, "runs", table_columns.RUNS), key=lambda row: row["dataset"]
    )
    assert (learns["energy_per_image_j"], plain["energy_per_image_j"]) == (0.5, 0.5)
    assert (learns["synthetic_ratio"], learns["synthetic_runs"]) == (pytest.approx(1), 1)
    assert learns["item_shape"] == plain["item_shape"] == "8x8x1"
    assert (plain["synthetic_ratio"], plain["synthetic_runs"]) == (None, None)


def test_a_run_whose_code_changed_meanwhile_is_stale_and_says_why_and_what_it_was(capsys):
    made = study(PLAIN, repeats=2)
    trained, skipped = made.runs
    changed, end = {"made_from": {"code": "old"}}, {"status": "skipped", "message": "no horovod"}
    finished(trained, **changed)
    finished(skipped, **changed, **end)
    rows = {row["run_id"]: row for row in collected(made, "coverage", table_columns.COVERAGE)}
    assert {row["status"] for row in rows.values()} == {"stale"}
    reason = "code and data and environment changed since it was {}: envs/train/uv.lock; it was {}"
    assert rows[trained.id]["reason"] == reason.format("trained", "ok")
    assert rows[skipped.id]["reason"] == reason.format("recorded", "skipped: no horovod")
    assert "2 of 2 runs are stale" in capsys.readouterr().err
    rows = parquet_files.read("tables/runs.parquet", table_columns.RUNS).to_pylist()
    assert {row["run_id"]: row["status"] for row in rows}[trained.id] == "ok"


def test_what_is_not_installed_is_in_no_figure_and_the_tables_say_so():
    made = study(PLAIN, repeats=3)
    trained, without, small = made.runs
    finished(trained)
    finished(without, status="skipped", message="horovod is not installed in envs/train")
    finished(small, status="skipped", message="needs 4 cpu devices per node")
    rows = {row["run_id"]: row["apart"] for row in collected(made, "runs", table_columns.RUNS)}
    assert rows == {trained.id: None, small.id: None, without.id: "not installed"}
    assert {*frames.Tables("tables", "results/runs").runs["run_id"]} == {trained.id, small.id}
    (row,) = (
        row
        for row in parquet_files.read("tables/coverage.parquet", table_columns.COVERAGE).to_pylist()
        if row["run_id"] == without.id
    )
    assert (row["status"], row["reason"]) == ("skipped", "horovod is not installed in envs/train")


def test_speedups_are_a_table_of_their_own():
    made = study(PLAIN | {"strategy": "mirrored", "devices_per_node": [1, 2]}, repeats=2)
    for run in made.runs:
        finished(run, start={"devices": ["CPU"] * run.devices})
    one, two = collected(made, "speedups", table_columns.SPEEDUPS)
    assert (one["devices"], two["devices"], two["scaling"]) == (1, 2, "weak")
    assert (two["speedup"], two["runs"], two["base_mismatch"]) == (pytest.approx(2), 2, "")
    with open("tables/speedups.csv", newline="") as file:
        assert [row["devices"] for row in csv.DictReader(file)] == ["1", "2"]


def test_the_tables_of_a_study_have_all_runs_and_what_was_left_out():
    block = PLAIN | {
        "batch_per_device": [8, 16],
        "exclude": [{"batch_per_device": 16, "reason": "too big"}],
    }
    made = study(block, LEARNS)
    for run in made.runs:
        finished(run, top1=0.95 if run.epochs else None)
    rows = collected(made, "coverage", table_columns.COVERAGE)
    assert [row["status"] for row in rows] == ["ok", "ok", "excluded"]
    assert [row["run_id"] for row in rows] == [*sorted(run.id for run in made.runs), None]
    assert rows[-1]["reason"] == "block plain: too big"
    (evaluation,) = parquet_files.read("tables/evals.parquet", table_columns.EVALS).to_pylist()
    assert (evaluation["top1"], evaluation["split"], evaluation["iou"]) == (0.95, "test", None)
    (row, _) = parquet_files.read("tables/runs.parquet", table_columns.RUNS).to_pylist()
    assert (row["study"], row["site"], row["device_kind"]) == ("test", "here", "cpu")
    assert row["framework_version"] == "2.18.1"


def test_duckdb_pandas_and_polars_read_every_table_and_the_tables_of_a_run():
    made = study(LEARNS, PLAIN | {"strategy": "mirrored", "devices_per_node": [1, 2]})
    for run in made.runs:
        top1, start = 0.95 if run.epochs else None, {"devices": ["CPU"] * run.devices}
        finished(run, [PROCESS], top1=top1, start=start)
    collect_runs.collect(made, "cpu", "tables")
    place = run_record.folder(made.runs[0].id)
    paths = [*Path("tables").glob("*.parquet"), *place.glob("*.parquet")]
    assert len(paths) == len(table_columns.STUDY_TABLES) + 3
    for path in paths:
        ours = pq.read_table(path)
        empty = {
            "evals", "accounts", "metrics", "comparisons", "published", "drift", "nodes",
            "explanations", "tries",
        }  # fmt: skip
        assert ours.num_rows or path.stem in empty, path
        readings = (
            list(pandas.read_parquet(path).columns),
            polars.read_parquet(path).columns,
            duckdb.sql(f"select * from '{path}'").columns,
        )
        assert all(names == ours.column_names for names in readings), path
        (count,) = duckdb.sql(f"select count(*) from '{path}'").fetchall()[0]
        assert count == ours.num_rows == polars.read_parquet(path).height
    for path in Path("tables").glob("*.csv"):
        names = pq.read_schema(path.with_suffix(".parquet")).names
        assert list(pandas.read_csv(path).columns) == names
    csv = {path.stem for path in Path("tables").glob("*.csv")}
    assert csv == table_columns.STUDY_TABLES.keys() - {"evals"}


def test_the_table_of_runs_names_the_trace_of_a_profile(folder):
    made = study(PLAIN | {"profile": True}, PLAIN | {"name": "another", "batch_per_device": 16})
    for run in made.runs:
        place = finished(run)
        if run.profile:
            trace = place / event_log.TRACE
            trace.write_bytes(b"a trace")
            log = event_log.EventLog(place / "train.jsonl")
            log.write("profile", spent_s=1.0, steps=5, sha256=sha256(trace))
            log.close()
            parse_run.parse(run, place / "train.jsonl", place / "run.json")
    rows = collected(made, "runs", table_columns.RUNS)
    with_one = next(run.id for run in made.runs if run.profile)
    found = {
        row["run_id"]: (row["profile"], row["profiled_steps"], row["trace_file"]) for row in rows
    }
    assert found.pop(with_one) == (True, 5, "trace.json.gz")
    assert [*found.values()] == [(False, None, None)]


def test_the_table_of_evaluations_is_that_of_the_runs(monkeypatch):
    monkeypatch.setattr(run_tables, "ROW_GROUP", 1)
    made = study(LEARNS, repeats=3)
    for run in made.runs:
        finished(run, top1=0.5 + 0.1 * run.repeat)
    collect_runs.collect(made, "cpu", "tables")
    evals = parquet_files.read("tables/evals.parquet", table_columns.EVALS).to_pylist()
    places = sorted(run_record.folder(run.id) for run in made.runs)
    own = [row for place in places for row in run_tables.run_table(place, "evals").to_pylist()]
    assert evals == own and len(own) == 3


def test_copies_are_one_row_with_the_spread_between_them():
    made = study(PLAIN | {"copies_per_node": 2})
    finished(made.runs[0], ranks=2)
    (row,) = collected(made, "runs", table_columns.RUNS)
    assert (row["copies_per_node"], row["devices"], row["images_per_second"]) == (2, 1, 16.0)
    assert row["copy_sd_images_per_second"] == 0.0
    assert 0.9 < row["overlap"] <= 1.0
    place = run_record.folder(made.runs[0].id)
    steps = parquet_files.read(place / "steps.parquet", table_columns.STEPS).to_pylist()
    assert [(step["rank"], step["step"]) for step in steps] == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_a_log_that_changed_after_its_record_or_has_none_stops_the_collection():
    made = study(PLAIN)
    place = finished(made.runs[0])
    content = (place / "train.jsonl").read_bytes()
    (place / "train.jsonl").write_bytes(content.replace(b"2.0", b"1.0"))
    with pytest.raises(RecordError, match="changed after its record was written"):
        collect_runs.collect(made, "cpu", "tables")
    (place / "run.json").unlink()
    with pytest.raises(RecordError, match="there is no record"):
        collect_runs.collect(made, "cpu", "tables")


def test_conditions_are_compared_in_a_table_of_their_own():
    made = study(
        PLAIN | {"xla": [False, True]}, repeats=3, compare=[{"field": "xla", "base": False}]
    )
    for run in made.runs:
        finished(run, **({"status": "oom", "message": ""} if run.repeat == 3 else {}))
    (row,) = collected(made, "comparisons", table_columns.COMPARISONS)
    assert (row["study"], row["condition"], row["base"]) == ("test", "True", "False")
    assert (row["n_a"], row["n_b"], row["verdict"]) == (2, 2, "too few runs")
    assert row["ratio"] == 1
    with open("tables/comparisons.csv", newline="") as file:
        assert [r["verdict"] for r in csv.DictReader(file)] == ["too few runs"]


def test_metrics_that_cannot_be_compared_are_printed_with_the_reason(capsys):
    bandwidth = {"name": "busbw", "value": 230.5, "unit": "GB/s", "better": "higher"}
    table = [
        {"run_id": "a", **bandwidth},
        {"run_id": "b", **bandwidth, "unit": "MB/s"},
        {"run_id": "b", **bandwidth, "name": "skew", "value": -1.0},
    ]
    compare = [{"field": "runtime", "metric": name} for name in ("skev", "top1")]
    rows = measures.attached([{"run_id": name, "status": "ok"} for name in "ab"], table)
    collect_runs.report_metrics(SimpleNamespace(compare=compare), measures.named(table), rows)
    assert capsys.readouterr().err.splitlines() == [
        "metric busbw: unit is 'GB/s' in a and 'MB/s' in b: not compared until all runs agree",
        "compare: no run has a metric 'skev' (did you mean 'skew'?)",
        "metric skew: -1 in b: no ratio",
    ]


def falsify(run, **numbers):
    """Write other numbers into a record, which is sound otherwise."""
    place = run_record.folder(run.id) / "run.json"
    record = json.loads(place.read_text())
    del record["record_sha256"]
    record["summary"] |= numbers
    place.write_text(json.dumps(record | {"record_sha256": run_record.digest(record)}))


@pytest.mark.parametrize("name", ["images_per_second", "step_time_mean_s"])
def test_a_record_that_contradicts_itself_says_so_and_is_compared_with_nothing(capsys, name):
    made = study(
        PLAIN | {"xla": [False, True]}, repeats=3, compare=[{"field": "xla", "base": False}]
    )
    for run in made.runs:
        finished(run)
    false = next(run for run in made.runs if run.xla and run.repeat == 3)
    falsify(false, **{name: 128.0})
    (compared,) = collected(made, "comparisons", table_columns.COMPARISONS)
    assert (compared["n_a"], compared["n_b"], compared["ratio"]) == (2, 3, 1)
    rows = {row["run_id"]: row for row in collected(made, "runs", table_columns.RUNS)}
    assert "global_batch / step_time_mean_s is 8 / " in rows[false.id].pop("contradicts")
    assert rows[false.id][name] == 128
    assert not any(row.get("contradicts") for row in rows.values())
    assert sum(row["runs"] for row in collected(made, "speedups", table_columns.SPEEDUPS)) == 5
    reasons = [row["reason"] for row in collected(made, "coverage", table_columns.COVERAGE)]
    assert sum("its numbers contradict one another" in reason for reason in reasons) == 1
    assert "its numbers contradict one another" in capsys.readouterr().err
    frame = frames.Tables("tables", "results/runs").runs.set_index("run_id")
    assert frame["images_per_second"].isna().sum() == 1
    assert frame.loc[false.id, "status"] == "ok"


def test_an_import_of_before_is_read_and_its_contradictions_are_found():
    Path("theirs").mkdir()
    made = study(PLAIN, imports=[{"name": "theirs", "path": "theirs"}])
    finished(made.runs[0])
    row = {"status": "ok", "model": "lenet5", "dataset": "synthetic", "devices": 1, "study": "a"}
    row |= {"global_batch": 8, "step_time_mean_s": 0.5, "timing_source": "mxnet"}
    rates = {"true": 16.0, "false": 128.0}
    rows = [row | {"run_id": name, "images_per_second": rate} for name, rate in rates.items()]
    added = ("contradicts", "rate_uncertainty", "images_per_second_per_device")
    before = pa.schema([field for field in table_columns.RUNS if field.name not in added])
    parquet_files.write("results/imports/theirs/runs.parquet", rows, before)
    parquet_files.write("results/imports/theirs/evals.parquet", [], table_columns.EVALS)
    rows = {row["run_id"]: row for row in collected(made, "runs", table_columns.RUNS)}
    assert rows["true"]["contradicts"] is None
    assert "8 times as much" in rows["false"]["contradicts"]
    assert rows["true"]["images_per_second_per_device"] == 16
    speedups = collected(made, "speedups", table_columns.SPEEDUPS)
    assert [row["runs"] for row in speedups if row["settings_of"] == "a/true"] == [1]


def of_baselines(folder, *found):
    place = folder / "machine"
    place.mkdir(exist_ok=True)
    for number, one in enumerate(found):
        (place / f"tensorflow-{number}.json").write_text(json.dumps(one))
    collect_runs.collect_baselines(folder, folder)
    return pq.read_table(folder / "baselines.parquet").to_pylist()


def test_each_size_is_a_row_with_where_and_how_it_was_measured(tmp_path):
    assert of_baselines(tmp_path) == []
    rows = of_baselines(tmp_path, made_baselines.exchange(devices=2))
    assert len(rows) == len(made_baselines.SIZES)
    for row, size in zip(rows, made_baselines.SIZES, strict=True):
        assert (row["measure"], row["size_bytes"], row["unit"]) == ("all_reduce", size, "GB/s")
        assert row["baseline"] == "tensorflow-0"
        assert (row["strategy"], row["devices"], row["framework_version"]) == ("horovod", 2, "2.18")
        assert row["low"] <= row["value"] <= row["high"]
        assert row["measured_at"].year == 2026
        assert row["precision"] is None  # gradients are float32 in each
    assert (tmp_path / "baselines.csv").read_text().count("\n") == len(rows) + 1


def test_of_one_device_strategy_and_launcher_are_left_out_and_reasons_stay(tmp_path):
    rows = of_baselines(tmp_path, made_baselines.device())
    by_measure = {row["measure"]: row for row in rows}
    assert by_measure["matrix_product"]["precision"] == "float32"
    assert by_measure["memory_copy"]["precision"] is None
    assert {row["strategy"] for row in rows} == {None}
    copies = by_measure["host_to_device"]
    assert copies["value"] is None and "nothing is copied" in copies["unknown"]
    assert by_measure["items_read"]["dataset"] == "digits"


def test_every_collective_keeps_its_strategy_and_launcher_and_the_reason_why_it_is_unknown(
    tmp_path,
):
    exchange = made_baselines.exchange(devices=2)
    exchange["rows"] = [
        {"measure": "all_gather", "unit": "GB/s", "value": 1.0, "size_bytes": 1024},
        {"measure": "sendrecv", "unit": "GB/s", "unknown": "Horovod has no such operation"},
    ]
    gathered, sent = of_baselines(tmp_path, exchange)
    for row in (gathered, sent):
        assert (row["strategy"], row["launcher"], row["devices"]) == ("horovod", "horovodrun", 2)
    assert sent["value"] is None and sent["unknown"] == "Horovod has no such operation"


def test_a_damaged_file_is_named_with_the_way_out(tmp_path):
    path = tmp_path / "machine" / "tensorflow-0.json"
    path.parent.mkdir()
    for text in ("", "[]", "{}", '{"conditions": {}, "rows": []}'):
        path.write_text(text)
        with pytest.raises(Error, match=r"tensorflow-0\.json: expected a baseline.*delete it"):
            collect_runs.collect_baselines(tmp_path, tmp_path)


WIDEST = PLAIN | {"name": "widest", "batch_per_device": "max"}


def read(name):
    return parquet_files.read(f"tables/{name}.parquet", table_columns.STUDY_TABLES[name])


def test_tries_are_rows_of_their_own_table_and_runs_say_that_their_batch_was_found(folder):
    (search_id,) = study(WIDEST).searches
    write_found(search_id, tries=TRIES, node_memory_bytes=1000, host="n1")
    made = study(WIDEST, PLAIN)
    for run in made.runs:
        finished(run)
    collect_runs.collect(made, "cpu", "tables")
    rows = read("runs").to_pylist()
    assert {row["batch_per_device"]: row["batch_found"] for row in rows} == {48: True, 8: False}
    tries = read("tries").to_pylist()
    assert [(row["batch_per_device"], row["fits"], row["status"]) for row in tries] == [
        (1, True, "ok"),
        (2, False, "oom"),
    ]
    common = {"search": search_id, "model": "lenet5", "found_batch_per_device": 48, "host": "n1"}
    assert all(row.items() >= (common | {"node_memory_bytes": 1000}).items() for row in tries)
    assert tries[0]["peak_memory_bytes"] == 200 and tries[0]["share_of_memory"] == 0.2


RUN = Run(model="lenet5", dataset="digits", batch_per_device=8, devices_per_node=2, epochs=3)
SUMMARY = {"burn_in_steps": 10, "steps_measured": 90, "images_per_second": 100.0, "resumes": 0}


def test_energy_per_image_is_over_all_items_of_all_steps():
    per_image = run_rows.energies_per_image_j(
        RUN, SUMMARY | {"energy_j": 3200.0, "node_energy_j": 8e3}
    )
    assert per_image == {
        "energy_per_image_j": 2.0,
        "host_energy_per_image_j": None,
        "node_energy_per_image_j": 5.0,
    }
    # Of a part or of no step it is not known.
    no_step = {"energy_j": 5.0, "burn_in_steps": 0, "steps_measured": 0}
    for change in ({"energy_j": None}, {}, {"energy_j": 5.0, "resumes": 1}, no_step):
        assert set(run_rows.energies_per_image_j(RUN, SUMMARY | change).values()) == {None}


@pytest.mark.parametrize(("clock", "shown"), [(80.0, "-20.0 %"), (125.0, "+25.0 %")])
def test_a_clock_that_differs_by_more_than_five_percent_and_a_batch_is_named(clock, shown):
    found = run_rows.epochs_check(SUMMARY | {"epochs_images_per_second": clock})
    assert found == (
        f"{shown}: epochs x images / time is {clock:.4g} items/s, the steps say 100; "
        "expected at most 6.11 % apart"
    )
    assert run_rows.disagreement(found) == f"throughput by the clock differs by {found}"
    for other, expected in ((100.0, "agrees"), (94.5, "agrees"), (105.5, "agrees"), (None, None)):
        found = run_rows.epochs_check(SUMMARY | {"epochs_images_per_second": other})
        assert (found, run_rows.disagreement(found)) == (expected, "")


def test_the_training_time_is_that_of_the_slowest_rank_and_nothing_before_the_first_step():
    ranks, steps = np.repeat([0, 1], 4), np.tile([1, 2, 3, 4], 2)
    times = np.array([1.0, 3.0, 1.0, 9.0, 2.0, 1.0, 2.5, 1.0])
    assert run_rows.training_time_s(ranks, steps, times, until=3) == 5.5
    assert run_rows.training_time_s(ranks, steps, times, until=0) == 0.0


EVALS = [
    {"epoch": 0, "step": 0, "t_s": 1.0, "top1": 0.1, "top5": 0.5},
    {"epoch": 1, "step": 20, "t_s": 4.0, "top1": 0.92, "top5": 0.95},
    {"epoch": 2, "step": 40, "t_s": 7.0, "top1": 0.91, "top5": 0.99},
]


@pytest.mark.parametrize(
    ("must_reach", "epoch"),
    [
        ({"top1": 0.9}, 1),
        ({"top1": 0.9, "top5": 0.98}, 2),
        ({"top1": 0.9, "final_loss": 0.1}, 1),
        ({"top1": 0.05}, 0),
    ],
)
def test_time_to_accuracy_ends_at_the_first_evaluation_with_all_scores(must_reach, epoch):
    assert run_rows.reached_at(must_reach, EVALS)["epoch"] == epoch


@pytest.mark.parametrize(
    "must_reach", [None, {}, {"top1": 0.95}, {"final_loss": 9.0}, {"iou": 0.1}]
)
def test_a_score_that_is_never_reached_or_not_asked_for_has_no_time(must_reach):
    assert run_rows.reached_at(must_reach, EVALS) is None
    assert run_rows.reached_at({"top1": 0.1}, [{"top1": math.nan}, {"top1": None}]) is None


def rows(*cases):
    """(dataset, throughput, changes) as rows of the runs table."""
    made = []
    for dataset, rate, changes in cases:
        shape = changes.pop("item_shape", "32x32x1")
        run = Run(**{"model": "lenet5", "dataset": dataset, "batch_per_device": 8} | changes)
        made.append({name: getattr(run, name) for name in FIELDS})
        made[-1] |= {"status": "ok" if rate else "oom", "images_per_second": rate}
        made[-1] |= {"site": "here", "framework_version": "2", "device_model": "CPU"}
        made[-1]["item_shape"] = shape
    return made


def with_ratios(*cases):
    made = rows(*cases)
    given = [dict(row) for row in made]
    found = run_rows.with_shared(made)
    assert made == given  # rows are new
    return [(row.get("synthetic_ratio"), row.get("synthetic_runs")) for row in found]


def test_real_data_stands_beside_the_mean_of_the_same_on_synthetic_items():
    assert with_ratios(
        ("digits", 80.0, {"epochs": 3, "augment": False, "cache": "memory"}),
        ("digits", None, {"epochs": 3, "repeat": 2}),
        ("synthetic", 50.0, {"steps": 100}),
        ("synthetic", 200.0, {"steps": 100, "repeat": 2}),
        ("synthetic", None, {"steps": 100, "repeat": 3}),
    ) == [(pytest.approx(0.8), 2), *[(None, None)] * 4]


def test_a_failed_run_is_no_partner_and_has_none_though_it_has_a_throughput():
    made = rows(
        ("digits", 80.0, {"epochs": 3}),
        ("digits", 80.0, {"epochs": 3, "repeat": 2}),
        ("synthetic", 50.0, {"steps": 100}),
        ("synthetic", 200.0, {"steps": 100, "repeat": 2}),
    )
    made[1]["status"] = made[3]["status"] = "failed"
    made = run_rows.with_shared(made)
    assert [row.get("synthetic_ratio") for row in made] == [pytest.approx(1.6), None, None, None]
    assert made[0]["synthetic_runs"] == 1


def test_what_does_other_work_in_a_step_or_reads_items_of_another_shape_is_no_partner():
    for change in (
        {"batch_per_device": 16}, {"strategy": "mirrored"}, {"precision": "bfloat16"},
        {"xla": True}, {"devices_per_node": 2}, {"runtime": "apptainer"}, {"optimizer": "adam"},
        {"mode": "forward"},
    ):  # fmt: skip
        cases = ("digits", 80.0, {"steps": 9}), ("synthetic", 50.0, {"steps": 9} | change)
        assert with_ratios(*cases)[0] == (None, None), change
    # KIT's AlexNet reads CIFAR-10, and made-up images like those of ImageNet.
    for shapes in (("32x32x3", "227x227x3"), ("32x32x3", None), (None, None)):
        real, synthetic = ({"steps": 500, "item_shape": shape} for shape in shapes)
        cases = ("cifar10", 5258.0, real), ("synthetic", 632.0, synthetic)
        assert with_ratios(*cases)[0] == (None, None), shapes


def test_of_synthetic_runs_of_several_lengths_those_of_the_runs_own_are_the_partner():
    cases = [
        ("theirs", 80.0, {"steps": 500}),  # not known, so taken for a real one
        ("theirs", 80.0, {"epochs": 5}),
        ("synthetic", 40.0, {"steps": 500}),
        ("synthetic", 160.0, {"steps": 50}),
    ]
    made = rows(*cases)
    for row in made:
        row["steps_measured"] = row["steps"] or 9000
    made = run_rows.with_shared(made)
    assert [row.get("synthetic_ratio") for row in made[:2]] == [2.0, 2.0]


def test_a_run_that_failed_early_has_the_shape_of_others_of_its_model_and_dataset():
    made = rows(
        ("digits", 80.0, {}),
        ("digits", None, {"item_shape": None}),
        ("synthetic", None, {"item_shape": None}),
    )
    made = run_rows.with_shared(made)
    assert [row["item_shape"] for row in made] == ["32x32x1", "32x32x1", None]


def test_throughput_of_texts_is_in_tokens_too_and_what_a_log_of_others_states_stays():
    shapes, rates = ["128", "32x32x1", None, "128"], [10.0, 10.0, 10.0, None]
    made = [
        {"item_shape": shape, "images_per_second": rate}
        for shape, rate in zip(shapes, rates, strict=True)
    ]
    made.append({"item_shape": None, "images_per_second": 10.0, "tokens_per_second": 5120.0})
    made = run_rows.with_shared([{"status": "failed", "dataset": "x"} | row for row in made])
    assert [row.get("item") for row in made] == ["sequence", "image", None, "sequence", None]
    tokens = [row.get("tokens_per_second") for row in made]
    assert tokens == [1280.0, None, None, None, 5120.0]


GPU = {
    "gpu": 0, "utilisation_percent": 97, "memory_used_bytes": 4 << 30, "power_w": 305.5,
    "temperature_c": 61, "clock_sm_mhz": 1980, "clock_memory_mhz": 2619, "throttle_reasons": [],
    "energy_j": 152.5,
}  # fmt: skip


def samples_of(made):
    collect_runs.collect(made, "cpu", "tables")
    place = run_record.folder(made.runs[0].id)
    return parquet_files.read(place / "samples.parquet", table_columns.SAMPLES).to_pylist()


def filled(**values):
    return dict.fromkeys(table_columns.SAMPLES.names) | values


def test_a_process_and_each_of_its_gpus_is_a_row_of_its_own():
    made = study(PLAIN)
    run = made.runs[0]
    reasons = ["sw_power_cap", "hw_slowdown"]
    other = GPU | {"gpu": "GPU-5d1b", "throttle_reasons": reasons, "power_w": None}
    unread = dict.fromkeys(GPU) | {"gpu": 1}  # its reasons are absent, and not empty
    later = {"t_s": 1.5, "cpu_percent": None, "memory_bytes": 5}
    finished(run, samples=[PROCESS | {"gpus": [GPU, other, unread]}, later])
    process, first, second, third, plain = samples_of(made)
    assert process == filled(run_id=run.id, rank=0, **PROCESS)
    assert plain == filled(run_id=run.id, rank=0, t_s=1.5, memory_bytes=5)
    assert third == filled(run_id=run.id, rank=0, t_s=0.5, gpu="1")
    whose = {"run_id": run.id, "rank": 0, "t_s": 0.5}
    assert first == filled(**GPU | whose | {"gpu": "0", "throttle_reasons": ""})
    assert second == filled(**other | whose | {"throttle_reasons": "sw_power_cap+hw_slowdown"})


def test_every_rank_has_samples_of_its_own():
    two = {"strategy": "horovod", "devices_per_node": 2}
    made = study(PLAIN | two)
    finished(made.runs[0], samples=[PROCESS, PROCESS | {"t_s": 1.0}], ranks=2)
    rows = samples_of(made)
    assert [(row["rank"], row["t_s"]) for row in rows] == [(0, 0.5), (0, 1.0), (1, 0.5), (1, 1.0)]


def test_a_table_that_is_there_is_kept_until_it_is_deleted_or_the_log_is_another_one():
    made = study(PLAIN)
    place = finished(made.runs[0], samples=[PROCESS])
    assert len(samples_of(made)) == 1
    before = (place / "samples.parquet").stat().st_mtime_ns
    assert len(samples_of(made)) == 1
    assert (place / "samples.parquet").stat().st_mtime_ns == before
    (place / "samples.parquet").unlink()
    assert len(samples_of(made)) == 1
    (place / "train.jsonl").unlink()
    finished(made.runs[0], samples=[PROCESS, PROCESS])
    assert len(samples_of(made)) == 2
    (place / "train.jsonl").unlink()
    finished(made.runs[0])
    assert samples_of(made) == []
    assert b"log_sha256" in pq.read_schema(place / "samples.parquet").metadata
