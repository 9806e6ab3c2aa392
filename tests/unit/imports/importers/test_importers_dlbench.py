"""Our own logs and records: imported, they have the numbers that our tables have."""

import dataclasses
import gzip
import os
import shutil

import pyarrow.parquet as pq
import pytest

from dlbench import Error
from dlbench.analysis import run_tables
from dlbench.imports import import_logs
from dlbench.log import event_log
from dlbench.log.event_log import EventLog
from dlbench.records import parse_run, run_record
from dlbench.study.runs import Run
from dlbench.tables import parquet_files, table_columns
from dlbench.tables.table_columns import METRICS
from support.runs import made_runs, parsed_runs

SUMMED_UP = (
    *("images_per_second", "steps_measured", "burn_in_steps", "step_time_mean_s"),
    *("step_time_sd_s", "step_time_median_s", "step_time_p95_s", "step_time_mad_s"),
    *("final_loss", "duration_s"),
)
ONE = Run(model="lenet5", dataset="synthetic", batch_per_device=32, steps=3, warmup_steps=1)
TWO = dataclasses.replace(ONE, strategy="horovod", launcher="horovodrun", devices_per_node=2)


def write(folder, run, times, rank=0, losses=None, status="ok"):
    """The log of a rank whose first step is warm-up; None for `status` leaves out run_end."""
    log = EventLog(event_log.rank_path(folder / "train.jsonl", rank))
    started = {"versions": {"tensorflow": "2.18.1"}, "devices": [f"/device:CPU:{rank}"]}
    log.start(spec=run.values(), total_steps=len(times), **started)
    t_s = 0.0
    for step, time in enumerate(times, start=1):
        t_s += time
        log.step(step, t_s, time, losses[step - 1] if losses else 2.0, 0.01, step == 1, 1)
    if status:
        end = {"status": status, "message": "", "weights_sha256": ["0"]}
        log.write("run_end", t_s=t_s, t_utc=event_log.utc_now(), **end)
    log.close()


@pytest.mark.parametrize("packed", [False, True])
def test_a_log_of_ours_has_the_numbers_of_its_record(tmp_path, packed):
    logs = tmp_path / "logs"
    write(logs, TWO, [9.0, 0.4, 0.5, 0.7], rank=0, losses=[1.0, 1.0, 1.0, 0.5])
    write(logs, TWO, [9.0, 0.5, 0.25, 0.7], rank=1, losses=[3.0, 3.0, 3.0, 1.0])
    parse_run.parse(TWO, logs / "train.jsonl", tmp_path / "run.json")
    record = run_record.read(tmp_path / "run.json")
    summary = record["summary"]
    if packed:
        for path in list(logs.iterdir()):
            path.write_bytes(gzip.compress(path.read_bytes()))
    steps = tmp_path / "steps.parquet"
    made = import_logs.import_paths([logs], outputs={"steps": steps})
    (row,) = made.rows
    ((name, why),) = made.left_out
    assert name == "train.rank1.jsonl" and why.startswith("no run of its own: it belongs to the ru")
    assert {name: row[name] for name in SUMMED_UP} == {name: summary[name] for name in SUMMED_UP}
    assert (row["model"], row["devices"], row["global_batch"]) == ("lenet5", 2, 64)
    assert (row["status"], row["message"]) == (record["status"], record["message"])
    assert row["timing_source"] == "dlbench"
    assert row["run_id"].endswith(f"-{row['log_sha256'][:10]}")
    assert sorted(set(pq.read_table(steps)["rank"].to_pylist())) == [0, 1]


def test_of_two_sites_with_runs_of_one_id_both_are_imported(study):
    made_runs.finish(study.runs[0], 60)
    os.rename("results", "here")
    made_runs.finish(study.runs[0], 90)
    first, second = import_logs.import_paths(["here", "results"]).rows
    assert first["run_id"] == study.runs[0].id
    assert second["run_id"] == f"{study.runs[0].id}-{second['log_sha256'][:10]}"
    assert (first["duration_s"], second["duration_s"]) == (58, 88)


def test_logs_of_earlier_attempts_are_no_runs(tmp_path):
    write(tmp_path, ONE, [9.0, 0.5, 0.5])
    shutil.copy(tmp_path / "train.jsonl", tmp_path / "kept.jsonl")
    event_log.keep_aside(tmp_path / "train.jsonl")
    (tmp_path / "kept.jsonl").rename(tmp_path / "train.jsonl")
    assert len(import_logs.import_paths([tmp_path]).rows) == 1


def test_a_log_without_its_end_is_refused(tmp_path):
    write(tmp_path, ONE, [9.0, 0.5], status=None)
    with pytest.raises(Error, match=r"train\.jsonl.*no run_end"):
        import_logs.import_paths([tmp_path / "train.jsonl"])


def test_a_results_folder_passes_through_with_its_steps(study, tmp_path):
    for run in study.runs[:2]:
        made_runs.finish(run, 60)
        parquet_files.write(
            run_record.folder(run.id) / "steps.parquet",
            [{"run_id": run.id, "step": 1, "step_time_s": 0.5, "warm_up": False}],
            table_columns.STEPS,
            log_sha256=run_record.read(run_record.folder(run.id) / "run.json")["log_sha256"],
        )
    broken = run_record.folder(study.runs[2].id) / "run.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{}")
    steps = tmp_path / "steps.parquet"
    made = import_logs.import_paths(["results"], {"site": "far"}, outputs={"steps": steps})
    records = {r.id: run_record.read(run_record.folder(r.id) / "run.json") for r in study.runs[:2]}
    expected = {name: record["summary"]["images_per_second"] for name, record in records.items()}
    assert {row["run_id"]: row["images_per_second"] for row in made.rows} == expected
    assert {row["site"] for row in made.rows} == {"far"}
    assert {row["timing_source"] for row in made.rows} == {"dlbench"}
    assert set(pq.read_table(steps)["run_id"].to_pylist()) == set(expected)
    assert [broken.parent.name in why for _, why in made.left_out] == [True]
    shutil.copytree("results", "copy")
    again = import_logs.import_paths(["results", "copy"])
    assert len(again.rows) == 2
    assert again.left_out[-2][1] == "the same run as in results"


def test_metrics_of_a_log_are_rows_of_the_import(tmp_path):
    logs = tmp_path / "logs"
    write(logs, ONE, [9.0, 0.5, 0.5], status=None)
    metric = {"name": "busbw", "value": 230.5, "unit": "GB/s", "better": "higher"}
    log = EventLog(logs / "train.jsonl")
    log.write("metric", **metric)
    log.write("run_end", t_utc=event_log.utc_now(), status="ok", message="", weights_sha256=["0"])
    log.close()
    outputs = {"runs": tmp_path / "runs.parquet", "metrics": tmp_path / "metrics.parquet"}
    (row,) = import_logs.import_paths([logs], outputs=outputs).rows
    found = parquet_files.read(outputs["metrics"], METRICS).to_pylist()
    assert found == [{"run_id": row["run_id"], **metric}]


# Folders of results, also of an earlier version


def parsed(results):
    """(the folder, the record) of a run in a folder of results."""
    folder = results / "runs" / parsed_runs.RUN.id
    folder.mkdir(parents=True)
    parsed_runs.write(folder, [0.5] * 4)
    return folder, parsed_runs.parsed(folder)


def test_evaluations_of_an_earlier_version_are_imported_without_the_columns_they_lack(tmp_path):
    folder, record = parsed(tmp_path)
    schema = table_columns.EVALS
    for name in ("score", "score_name"):
        schema = schema.remove(schema.get_field_index(name))
    rows = [{"run_id": parsed_runs.RUN.id, "epoch": 1, "split": "validation", "top1": 0.5}]
    digest = {"log_sha256": record["log_sha256"]}
    parquet_files.write(folder / "evals.parquet", rows, schema, **digest)
    ((_, tables, why_not),) = import_logs.read_folder(tmp_path)
    assert why_not == ""
    (found,) = tables["evals"].to_pylist()
    assert (found["top1"], found["score"], found["score_name"]) == (0.5, None, None)


def test_a_damaged_table_of_a_run_is_made_from_its_log_and_the_folder_stays_as_it_is(tmp_path):
    folder, record = parsed(tmp_path)
    run_tables.ensure_run_tables(parsed_runs.RUN.id, record["log_sha256"], results=tmp_path)
    ((_, whole, _),) = import_logs.read_folder(tmp_path)
    path = folder / "steps.parquet"
    content = path.read_bytes()
    damaged = content[:300] + bytes([content[300] ^ 4]) + content[301:]
    path.write_bytes(damaged)
    ((row, tables, why_not),) = import_logs.read_folder(tmp_path)
    assert (row["run_id"], why_not) == (parsed_runs.RUN.id, "")
    assert tables["steps"].equals(whole["steps"])
    assert path.read_bytes() == damaged
    with open(folder / "train.jsonl", "a") as log:
        log.write("x")
    ((row, _, why_not),) = import_logs.read_folder(tmp_path)
    assert row == {} and "train.jsonl" in why_not
