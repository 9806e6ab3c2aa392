"""Results folders of dlbench itself, also of an earlier version of it."""

from dlbench.analysis import run_tables
from dlbench.common.files import sha256
from dlbench.imports import own_results
from dlbench.tables import parquet_files, run_columns
from support.runs import parsed_runs


def test_evaluations_of_an_earlier_version_are_imported_without_the_columns_they_lack(tmp_path):
    folder = tmp_path / "runs" / parsed_runs.RUN.id
    folder.mkdir(parents=True)
    parsed_runs.write(folder, [0.5] * 4)
    record = parsed_runs.parsed(folder)
    schema = run_columns.EVALS
    for name in ("score", "score_name"):
        schema = schema.remove(schema.get_field_index(name))
    rows = [{"run_id": parsed_runs.RUN.id, "epoch": 1, "split": "validation", "top1": 0.5}]
    digest = {"log_sha256": record["log_sha256"]}
    parquet_files.write(folder / "evals.parquet", rows, schema, **digest)
    ((_, tables, why_not),) = own_results.read_folder(tmp_path)
    assert why_not == ""
    (found,) = tables["evals"].to_pylist()
    assert (found["top1"], found["score"], found["score_name"]) == (0.5, None, None)


def test_a_damaged_table_of_a_run_is_made_from_its_log_and_the_folder_stays_as_it_is(tmp_path):
    folder = tmp_path / "runs" / parsed_runs.RUN.id
    folder.mkdir(parents=True)
    parsed_runs.write(folder, [0.5] * 4)
    parsed_runs.parsed(folder)
    run_tables.ensure_run_tables(
        parsed_runs.RUN.id, sha256(folder / "train.jsonl"), results=tmp_path
    )
    ((_, whole, _),) = own_results.read_folder(tmp_path)
    path = folder / "steps.parquet"
    content = path.read_bytes()
    damaged = content[:300] + bytes([content[300] ^ 4]) + content[301:]
    path.write_bytes(damaged)
    ((row, tables, why_not),) = own_results.read_folder(tmp_path)
    assert (row["run_id"], why_not) == (parsed_runs.RUN.id, "")
    assert tables["steps"].equals(whole["steps"])
    assert path.read_bytes() == damaged
    with open(folder / "train.jsonl", "a") as log:
        log.write("x")
    ((row, _, why_not),) = own_results.read_folder(tmp_path)
    assert row == {} and "train.jsonl" in why_not
