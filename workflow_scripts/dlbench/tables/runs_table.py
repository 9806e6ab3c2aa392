"""Rows of a table of runs, from a Parquet, CSV or JSON file."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from dlbench import Error
from dlbench.tables import parquet_files, table_columns
from dlbench.tables.cells import Row


def table_rows(path: Path) -> list[Row]:
    """The rows of a runs table that are in means, with the columns that our table of runs has.

    Raises:
        Error: it is no runs table, or cannot be read.
    """
    readers = {".parquet": _parquet, ".csv": _csv, ".json": _json}
    if path.suffix not in readers:
        raise Error(f"{path}: expected a runs table that ends in {', '.join(readers)}")
    rows, columns = readers[path.suffix](path)
    missing = [name for name in ("run_id", "status", "model", "dataset") if name not in columns]
    if missing:
        raise Error(f"{path}: not a runs table: no column {', '.join(missing)}")
    return [row for row in rows if not row.get(table_columns.APART)]


def _parquet(path):
    table = parquet_files.read_any(path)
    if b"schema_version" not in (table.schema.metadata or {}):
        raise Error(f"{path}: not one of our tables: its metadata has no schema_version")
    columns = [name for name in table_columns.RUNS.names if name in table.column_names]
    return table.select(columns).to_pylist(), columns


def _csv(path):
    types = {f.name: _plain(f.type) for f in table_columns.RUNS}
    options = pa.csv.ConvertOptions(
        column_types=types,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    try:
        table = pa.csv.read_csv(path, convert_options=options)
    except (OSError, pa.ArrowInvalid) as error:
        raise Error(f"{path} cannot be read as a runs table in CSV: {error}") from error
    columns = [name for name in table_columns.RUNS.names if name in table.column_names]
    return parquet_files.from_csv(table.select(columns)).to_pylist(), columns


def _plain(type_):
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _json(path):
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        columns = set.intersection(*(set(row) for row in rows)) if rows else {"run_id"}
    except (ValueError, TypeError) as error:
        raise Error(f"{path} cannot be read as a list of runs in JSON: {error}") from error
    if not all(isinstance(row, dict) for row in rows):
        raise Error(f"{path}: expected a list of objects, one a run")
    return rows, columns if rows else {"run_id", "status", "model", "dataset"}
