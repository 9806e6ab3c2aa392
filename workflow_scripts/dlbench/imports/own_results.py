"""What is dlbench's own already: results folders and runs tables, whose rows pass through.

A results folder has runs/*/run.json; records that are damaged are left out and named. A runs table
is that of results/tables, of export_runs.py or of import_logs.py (.parquet, .csv or .json).
"""

from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq

from dlbench import Error
from dlbench.records import run_record
from dlbench.study.runs import Run, is_sentinel
from dlbench.tables import parquet_files, run_columns, runs_table

SUFFIXES = (".parquet", ".csv", ".json")


def is_results(folder):
    """Whether records lie in a folder as in results/, or as in an unpacked archive."""
    return next((folder / "runs").glob("*/run.json"), None) is not None


def of_folder(folder):
    """Yield (row of the runs table, tables by name, "") of each run; ({}, {}, why) of one left out.

    The tables are those of the run's folder (steps, evals, samples), as far as they are there.
    """
    for path in sorted((folder / "runs").glob("*/run.json")):
        if is_sentinel(path.parent.name):
            continue  # none of a study's
        try:
            record = run_record.read(path)
            found = row(record)
        except (Error, TypeError, KeyError) as error:
            yield {}, {}, f"{path.parent.name}: {error}"
            continue
        yield found, _tables(path.parent, record["log_sha256"]), ""


def row(record):
    """The row of a record, with the site that it names; no study is known, nor its learning gate.

    Raises:
        TypeError, KeyError, Error: it is no record of a run as we know them.
    """
    from dlbench.results import run_rows  # with all that compares, which is slow to import

    provenance = record["provenance"]
    origin = SimpleNamespace(name=None, site=provenance.get("site") or {}, must_reach={})
    origin.site = {"name": origin.site.get("name")}
    devices = " ".join(map(str, provenance.get("devices") or ())).lower()
    kind = next((kind for kind in ("gpu", "cpu") if kind in devices), None)
    return run_rows.row(Run(**record["spec"]), record, origin, kind)


def _tables(place, log_sha256):
    found = {}
    for name, schema in run_columns.RUN_TABLES.items():
        path = place / f"{name}.parquet"
        if parquet_files.made_from(path, log_sha256):
            found[name] = parquet_files.read(path, schema)
    return found


def is_table(log):
    """Whether a file is a runs table, by its columns."""
    head = log.head
    if log.path.suffix not in SUFFIXES:
        return False
    if head[:4] == b"PAR1":
        try:
            schema = pq.read_schema(log.path)
        except (OSError, pa.ArrowInvalid):
            return False
        names = set(schema.names)
        return b"schema_version" in (schema.metadata or {}) and {"run_id", "status"} <= names
    first = head.partition(b"\n")[0]
    if log.path.suffix == ".csv":
        return b"run_id" in first and b"status" in first
    return head.lstrip()[:1] == b"[" and b'"run_id"' in head and b'"status"' in head


def of_table(path):
    """Rows of a runs table.

    Raises:
        Error: it cannot be read.
    """
    return runs_table.table_rows(path)
