"""Read dlbench's results folders and runs tables, whose rows are imported unchanged.

A results folder has runs/*/run.json; damaged records are left out and listed. A runs table is a
file of results/tables, `dlbench export` or `dlbench import` (.parquet, .csv or .json).
"""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dlbench import Error
from dlbench.imports.log_file import LogFile
from dlbench.records import run_record
from dlbench.study.runs import is_of_statistics
from dlbench.tables import parquet_files, run_columns, runs_table
from dlbench.tables.metric_columns import METRICS

SUFFIXES = (".parquet", ".csv", ".json")


def is_results_folder(folder: Path) -> bool:
    """Whether a folder has records, like results/ and unpacked archives."""
    return next((folder / "runs").glob("*/run.json"), None) is not None


def read_folder(folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, pa.Table], str]]:
    """Yield (row of the runs table, tables by name, "") of each run.

    The tables are those of steps, evals and samples that the run's folder has, and its metrics. A
    run that is left out is ({}, {}, why).
    """
    for path in sorted((folder / "runs").glob("*/run.json")):
        if not is_of_statistics(path.parent.name):
            continue  # a sentinel or a probe is no run of the study
        try:
            record = run_record.read(path)
            row, tables = record_row(record), _tables(path.parent, record["log_sha256"])
            rows = [{"run_id": "", **one} for one in record["summary"].get("metrics", [])]
            tables["metrics"] = parquet_files.table(rows, METRICS)
        except (Error, OSError, TypeError, KeyError) as error:
            yield {}, {}, f"{path.parent.name}: {error}"
            continue
        yield row, tables, ""


def record_row(record: dict[str, Any]) -> dict[str, Any]:
    """The row of the runs table for a record; study and learning gate are unknown.

    Raises:
        TypeError, KeyError, Error: the record lacks a field or has one of another type.
    """
    from dlbench.results import run_rows  # which imports SciPy: slow

    provenance = record["provenance"]
    origin = SimpleNamespace(
        name=None, site=provenance.get("site") or {}, must_reach={}, with_found_batch=None
    )
    origin.site = {"name": origin.site.get("name")}
    devices = " ".join(map(str, provenance.get("devices") or ())).lower()
    kind = next((kind for kind in ("gpu", "cpu") if kind in devices), None)
    return run_rows.row(record, origin, kind)


def _tables(folder, log_sha256):
    tables = {}
    for name, schema in run_columns.RUN_TABLES.items():
        path = folder / f"{name}.parquet"
        if not path.exists():
            continue
        try:
            parquet_files.check(path)
            if parquet_files.is_made_from(path, log_sha256):
                tables[name] = parquet_files.read(path, schema, earlier=True)
        except parquet_files.TableError:
            from dlbench.analysis import run_tables  # which imports SciPy: slow

            tables[name] = run_tables.table_from_logs(folder, name)
    return tables


def is_runs_table(log: LogFile) -> bool:
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


def read_table(path: Path) -> list[dict[str, Any]]:
    """The rows of a runs table.

    Raises:
        Error: it cannot be read.
    """
    return runs_table.table_rows(path)
