"""Parquet tables with explicit schemas: units in the fields' metadata, versions in the file's.

- The units are in the file's metadata once more, where pandas looks for what it calls attributes:
  `pandas.read_parquet(path).attrs["units"]`.
- Written with zstd level 3, dictionaries for text, byte streams split for
  floats, delta coding for the step column, a row group a run, several for an imported long one.
- Read with the schema of this version; a file of a newer one is refused.
- Each file has its digest in its metadata, which is compared whenever it is read. Parquet's own
  checksums are of pages alone, and a changed bit in the footer can give other numbers, too. A file
  without a digest is of an earlier version, or of another writer.
"""

import contextlib
import functools
import hashlib
import json
import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from dlbench import Error
from dlbench.common.files import atomic_write, require_file
from dlbench.tables import cells, table_columns
from dlbench.tables.cells import Row

SCHEMA_VERSION = 3
ATTRIBUTES = "PANDAS_ATTRS"  # whose value pandas' read_parquet, as of 2.1, takes for `attrs`
DIGEST = "file_sha256"  # of the file, with zeros in its place
_BLANK = "0" * 64
# Before a value of the metadata: its key, then, in Thrift's compact protocol, field and length.
_BEFORE_DIGEST = DIGEST.encode() + bytes((0x18, len(_BLANK)))
_FOOTER_END_BYTES = 8  # its length, and PAR1
# The beginning of texts that spreadsheets run as formulas, or that have apostrophes already.
FORMULA = r"'*[=+\-@\t\r]"
NUMBER = r"^[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?$"


class TableError(Error):
    """A table that cannot be read; the message says why, and what makes it again."""


def write(path: Path | str, rows: Iterable[Row], schema: pa.Schema, **notes: str) -> None:
    """Write rows as one Parquet file atomically; see `table`."""
    content = table(rows, schema, **notes)
    with atomic_write(path) as part, writer(part, content.schema) as parquet:
        parquet.write_table(content)


@contextlib.contextmanager
def writer(path: Path | str, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Yield a ParquetWriter for tables of a schema; each that it writes becomes a row group.

    The file has its digest when the block ends.
    """
    encoding = {f.name: "BYTE_STREAM_SPLIT" for f in schema if pa.types.is_floating(f.type)}
    if "step" in schema.names:
        encoding["step"] = "DELTA_BINARY_PACKED"
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=3,
        use_dictionary=[f.name for f in schema if pa.types.is_dictionary(f.type)],
        column_encoding=encoding,
    ) as parquet:
        yield parquet
        parquet.add_key_value_metadata({DIGEST: _BLANK})
    with open(path, "r+b") as file:
        offset, digest = _digest(file)
        file.seek(offset)
        file.write(digest.encode())


def table(rows: Iterable[Row], schema: pa.Schema, **notes: str) -> pa.Table:
    """A table of rows; columns that a row lacks are empty.

    `notes`: further entries of the table's metadata. Raises ValueError: a row has a key that the
    schema lacks.
    """
    unknown = {key for row in rows for key in row} - set(schema.names)
    if unknown:
        raise ValueError(f"columns without a schema: {', '.join(sorted(unknown))}")
    return pa.Table.from_pylist(rows, schema=with_metadata(schema, **notes))


def with_metadata(schema: pa.Schema, **notes: str) -> pa.Schema:
    """A schema with the metadata of a file: version, units of the columns, and further notes."""
    units = {
        field.name: field.metadata[b"unit"].decode()
        for field in schema
        if b"unit" in (field.metadata or {})
    }
    metadata = {"schema_version": str(SCHEMA_VERSION), ATTRIBUTES: json.dumps({"units": units})}
    return schema.with_metadata(metadata | notes)


def file_metadata(path: Path | str) -> dict[str, str]:
    """The metadata of a Parquet file as text by key; {} if it cannot be read or has none."""
    try:
        metadata = pq.read_schema(path).metadata or {}
        return {key.decode(): value.decode() for key, value in metadata.items()}
    except (OSError, pa.ArrowException, UnicodeDecodeError):
        return {}


def is_made_from(path: Path | str, log_sha256: str) -> bool:
    """Whether a table of this version was made from the log with that digest."""
    notes = {"log_sha256": log_sha256, "schema_version": str(SCHEMA_VERSION)}
    return notes.items() <= file_metadata(path).items()


def read(
    path: Path | str, schema: pa.Schema, run_id: str | None = None, earlier: bool = False
) -> pa.Table:
    """A table with exactly the columns of `schema`.

    Args:
        run_id: read the rows of this run only.
        earlier: allow a table of an earlier version; columns that it lacks are empty.

    Raises:
        TableError: it is no Parquet file, is damaged, lacks a column, or is of a newer version.
    """
    with _opened(path, cached=run_id is not None) as file:
        present = file.schema_arrow.names  # computed at each access
        missing = [name for name in schema.names if name not in present]
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


def read_any(path: Path | str) -> pa.Table:
    """A table with all its columns, whoever wrote it.

    Raises TableError: it is no Parquet file, is damaged, or is of a newer version.
    """
    with _opened(path) as file:
        return file.read(use_threads=False)


def check(path: Path | str) -> None:
    """Compare a table with the digest that it has, if it has one.

    Raises TableError: it is no Parquet file, or is damaged.
    """
    with _opened(path):
        pass


@contextlib.contextmanager
def _opened(path, cached=False):
    """Yield a Parquet file whose content matches its digest; all tables are read through this.

    `cached`: it is opened for each of its runs; its digest is compared once.
    """
    try:
        require_file(path)
        if not (_was_intact(path, os.stat(path).st_mtime_ns) if cached else _is_intact(path)):
            raise TableError(
                f"{path} is damaged: it does not match the digest in it{_remedy(path)}"
            )
        with pq.ParquetFile(path) as file:
            version = int((file.schema_arrow.metadata or {}).get(b"schema_version", b"0"))
            if version > SCHEMA_VERSION:
                raise TableError(
                    f"{path}: schema version {version}, made by a newer dlbench; "
                    f"this one reads up to {SCHEMA_VERSION}"
                )
            yield file
    except Error:
        raise
    except FileNotFoundError as error:
        makes = f"; `{command}` makes it" if (command := _command(path)) else ""
        raise TableError(f"{path}: there is no such table{makes}") from error
    except (OSError, pa.ArrowException, ValueError, MemoryError) as error:
        # Of a file without a digest pyarrow says what is wrong, in many ways.
        raise TableError(f"{path} cannot be read as Parquet: {error}{_remedy(path)}") from error


@functools.lru_cache(maxsize=64)
def _was_intact(path, *_):
    return _is_intact(path)


def _is_intact(path):
    with open(path, "rb") as file:
        offset, digest = _digest(file)
        if offset is None:
            return True
        file.seek(offset)
        return file.read(len(_BLANK)) == digest.encode()


def _digest(file):
    """Where the digest of an open file is, and what it should be; (None, "") if it has none.

    Raises ValueError: it is no Parquet file.
    """
    if os.fstat(file.fileno()).st_size <= _FOOTER_END_BYTES:
        raise ValueError("it is empty or cut short")
    with (
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as content,
    ):
        footer_bytes = int.from_bytes(mapped[-_FOOTER_END_BYTES:-4], "little")
        start = max(0, len(mapped) - footer_bytes - _FOOTER_END_BYTES)
        found = mapped.rfind(_BEFORE_DIGEST, start)
        if found < 0:
            return None, ""
        offset = found + len(_BEFORE_DIGEST)
        digest = hashlib.sha256(content[:offset])
        digest.update(_BLANK.encode())
        digest.update(content[offset + len(_BLANK) :])
        return offset, digest.hexdigest()


def _remedy(path):
    """How to replace a damaged table, as the end of a message."""
    command = _command(path)
    remedy = f"remove it: `{command}` makes it again" if command else "take it anew from its origin"
    return f"; {remedy}"


def _command(path):
    """The command that makes a table again, by its path; "" for any other path."""
    parts = Path(path).parts
    if parts[-4:-2] == ("results", "runs"):
        return "snakemake --forcerun collect_runs"
    if parts[-4:-2] == ("results", "imports"):
        return f"snakemake {'/'.join(parts[-4:])}"
    if parts[-3:-1] == ("results", "tables"):
        if Path(path).stem in cells.OF_STUDY:
            return "snakemake tables"
        if Path(path).stem in cells.OF_MACHINES:
            return "snakemake baselines"
    return ""


def from_csv(table: pa.Table) -> pa.Table:
    """Take away the apostrophes that `write_csv` put before texts like formulas."""
    plain = {
        name: pc.replace_substring_regex(column, f"^'({FORMULA})", r"\1")
        if pa.types.is_string(column.type)
        else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pa.table(plain)


def _without_formulas(column):
    """A column in which an apostrophe stands before texts that begin like formulas.

    Numbers stay as they are.
    """
    if not pa.types.is_string(column.type):
        return column
    formula = pc.and_(
        pc.match_substring_regex(column, f"^{FORMULA}"),
        pc.invert(pc.match_substring_regex(column, NUMBER)),
    )
    return pc.if_else(formula, pc.binary_join_element_wise("'", column, ""), column)


def write_csv(path: Path | str, table: pa.Table) -> None:
    """Write a table as CSV atomically; absent values are empty.

    A text that a spreadsheet would run as a formula gets an apostrophe before it, which
    `from_csv` takes away.
    """
    plain = pa.table(
        {
            field.name: _without_formulas(
                column.cast(field.type.value_type) if pa.types.is_dictionary(field.type) else column
            )
            for field, column in zip(table.schema, table.columns, strict=True)
        }
    )
    with atomic_write(path) as part:
        pa.csv.write_csv(plain, part)


def table_rows(path: Path) -> list[Row]:
    """The rows of a runs table that are in means, with the columns that our table of runs has.

    Raises Error: it is no runs table, or cannot be read.
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
    table = read_any(path)
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
    return from_csv(table.select(columns)).to_pylist(), columns


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
