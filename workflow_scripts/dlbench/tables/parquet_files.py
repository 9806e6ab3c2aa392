"""Parquet tables with explicit schemas: units in the fields' metadata, versions in the file's.

- The units are in the file's metadata once more, where pandas looks for what it calls attributes:
  `pandas.read_parquet(path).attrs["units"]`.
- Written with zstd level 3, dictionaries for text, byte streams split for
  floats, delta coding for the step column, a row group a run, several for an imported long one.
- Read with the schema of this version; a file of a newer one is refused.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dlbench import Error
from dlbench.common.files import written_whole
from dlbench.tables.cells import Row

SCHEMA_VERSION = 2
ATTRIBUTES = "PANDAS_ATTRS"  # whose value pandas' read_parquet, as of 2.1, takes for `attrs`
# The beginning of texts that spreadsheets run as formulas, or that have apostrophes already.
FORMULA = r"'*[=+\-@\t\r]"
NUMBER = r"^[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?$"


class TableError(Error):
    """A table that cannot be read; the message says why."""


class _NoPandas:
    """A finder for sys.meta_path, by which pandas is not installed."""

    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(f"no module named {name!r}", name=name)


def spare_memory() -> None:
    """Have pyarrow spare memory in this process, for a program that makes no frames.

    pyarrow looks for pandas once, as it makes its first array, and would load it: 0.2 s and 40 MB.
    Who imports pandas later still gets it. The system's allocator gives back what is freed;
    pyarrow's own keeps it.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)


def write(path: Path | str, rows: Iterable[Row], schema: pa.Schema, **notes: str) -> None:
    """Write rows as one Parquet file, whole or not at all; see `table`."""
    content = table(rows, schema, **notes)
    with written_whole(path) as part, writer(part, content.schema) as parquet:
        parquet.write_table(content)


def writer(path: Path | str, schema: pa.Schema) -> pq.ParquetWriter:
    """A ParquetWriter for tables of a schema; each table that it writes becomes a row group."""
    encoding = {f.name: "BYTE_STREAM_SPLIT" for f in schema if pa.types.is_floating(f.type)}
    if "step" in schema.names:
        encoding["step"] = "DELTA_BINARY_PACKED"
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=3,
        use_dictionary=[f.name for f in schema if pa.types.is_dictionary(f.type)],
        column_encoding=encoding,
    )


def table(rows: Iterable[Row], schema: pa.Schema, **notes: str) -> pa.Table:
    """A table of rows; columns that a row lacks are empty.

    Args:
        notes: further entries of the table's metadata.

    Raises:
        ValueError: a row has a key that the schema lacks.
    """
    unknown = {key for row in rows for key in row} - set(schema.names)
    if unknown:
        raise ValueError(f"columns without a schema: {', '.join(sorted(unknown))}")
    return pa.Table.from_pylist(rows, schema=described(schema, **notes))


def described(schema: pa.Schema, **notes: str) -> pa.Schema:
    """A schema with the metadata of a file: version, units of the columns, and further notes."""
    units = {
        field.name: field.metadata[b"unit"].decode()
        for field in schema
        if b"unit" in (field.metadata or {})
    }
    metadata = {"schema_version": str(SCHEMA_VERSION), ATTRIBUTES: json.dumps({"units": units})}
    return schema.with_metadata(metadata | notes)


def notes_of(path: Path | str) -> dict[str, str]:
    """The metadata of a Parquet file as text by key; {} if it cannot be read or has none."""
    try:
        metadata = pq.read_schema(path).metadata or {}
        return {key.decode(): value.decode() for key, value in metadata.items()}
    except (OSError, pa.ArrowInvalid, UnicodeDecodeError):
        return {}


def made_from(path: Path | str, log_sha256: str) -> bool:
    """Whether a table of this version was made from the log with that digest."""
    notes = {"log_sha256": log_sha256, "schema_version": str(SCHEMA_VERSION)}
    return notes.items() <= notes_of(path).items()


def read(
    path: Path | str, schema: pa.Schema, run_id: str | None = None, earlier: bool = False
) -> pa.Table:
    """A table with exactly the columns of `schema`.

    Args:
        run_id: read the rows of this run only.
        earlier: allow a table of an earlier version; columns that it lacks are empty.

    Raises:
        TableError: it is no Parquet file, lacks a column, or is of a newer version.
    """
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise TableError(f"{path} cannot be read as Parquet: {error}") from error
    with file:
        there = file.schema_arrow  # made anew each time it is asked for
        version = int((there.metadata or {}).get(b"schema_version", b"0"))
        if version > SCHEMA_VERSION:
            raise TableError(
                f"{path}: schema version {version}, made by a newer dlbench; "
                f"this one reads up to {SCHEMA_VERSION}"
            )
        missing = [name for name in schema.names if name not in there.names]
        if missing and not earlier:
            raise TableError(f"{path}: columns missing: {', '.join(missing)}")
        columns = [name for name in schema.names if name not in missing]
        if run_id is None:
            content = file.read(columns=columns, use_threads=False)
        else:
            chosen = [("run_id", "=", run_id)]
            content = pq.read_table(path, columns=columns, filters=chosen, use_threads=False)
    for name in missing:
        content = content.append_column(name, pa.nulls(len(content), schema.field(name).type))
    return content.select(schema.names).cast(schema)


def from_csv(table: pa.Table) -> pa.Table:
    """Take away the apostrophes that `write_csv` put before texts like formulas."""
    import pyarrow.compute as pc  # 9 MB of memory, which few need

    plain = {
        name: pc.replace_substring_regex(column, f"^'({FORMULA})", r"\1")
        if pa.types.is_string(column.type)
        else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pa.table(plain)


def _harmless(column):
    """A column in which an apostrophe stands before texts that begin like formulas.

    Numbers stay as they are.
    """
    import pyarrow.compute as pc

    if not pa.types.is_string(column.type):
        return column
    formula = pc.and_(
        pc.match_substring_regex(column, f"^{FORMULA}"),
        pc.invert(pc.match_substring_regex(column, NUMBER)),
    )
    return pc.if_else(formula, pc.binary_join_element_wise("'", column, ""), column)


def write_csv(path: Path | str, table: pa.Table) -> None:
    """Write a table as CSV, whole or not at all; absent values are empty.

    A text that a spreadsheet would run as a formula gets an apostrophe before it, which
    `from_csv` takes away.
    """
    import pyarrow.csv

    plain = pa.table(
        {
            field.name: _harmless(
                column.cast(field.type.value_type) if pa.types.is_dictionary(field.type) else column
            )
            for field, column in zip(table.schema, table.columns, strict=True)
        }
    )
    with written_whole(path) as part:
        pyarrow.csv.write_csv(plain, part)
