"""collect_runs: what searches for largest batches tried, as a table beside that of runs."""

from dlbench.results import collect_runs
from dlbench.tables import parquet_files, table_columns
from support.runs.collected_runs import PLAIN, finished, study
from support.runs.collected_runs import folder as folder
from support.studies.found_batches import TRIES, write_found

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
