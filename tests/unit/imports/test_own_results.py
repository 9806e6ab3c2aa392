"""Results folders of dlbench itself, also of an earlier version of it."""

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
