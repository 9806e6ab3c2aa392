"""Parquet tables with explicit schemas: units in the fields' metadata, versions in the file's.

- Written with zstd level 3, dictionaries for text, byte streams split for
  floats, delta coding for the step column, one row group a run.
- Read with the schema of this version; a file of a newer one is refused.
"""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dlbench import Error
from dlbench.common.files import written_whole

SCHEMA_VERSION = 2
# How texts begin that spreadsheets run as formulas, also such as were made harmless before.
FORMULA = r"'*[=+\-@\t\r]"
NUMBER = r"^[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?$"


class TableError(Error):
    """A table that cannot be read; the message says why."""


def write(path, rows, schema, **notes):
    """Write rows as one Parquet file, whole or not at all; see `table`."""
    made = table(rows, schema, **notes)
    with written_whole(path) as part, writer(part, made.schema) as parquet:
        parquet.write_table(made)


def writer(path, schema):
    """A ParquetWriter for tables of a schema: each of them becomes a row group."""
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


def table(rows, schema, **notes):
    """A table of rows (dictionaries); what a row has not is absent.

    Args:
        notes: further entries of the table's metadata, as text.

    Raises:
        ValueError: a row has a key that the schema lacks.
    """
    unknown = {key for row in rows for key in row} - set(schema.names)
    if unknown:
        raise ValueError(f"columns without a schema: {', '.join(sorted(unknown))}")
    metadata = {"schema_version": str(SCHEMA_VERSION), **notes}
    return pa.Table.from_pylist(rows, schema=schema.with_metadata(metadata))


def notes_of(path):
    """The metadata of a Parquet file as text by key; {} if it cannot be read or has none."""
    try:
        metadata = pq.read_schema(path).metadata or {}
        return {key.decode(): value.decode() for key, value in metadata.items()}
    except (OSError, pa.ArrowInvalid, UnicodeDecodeError):
        return {}


def made_from(path, log_sha256):
    """Whether a table of this version was made from the log with that digest."""
    notes = {"log_sha256": log_sha256, "schema_version": str(SCHEMA_VERSION)}
    return notes.items() <= notes_of(path).items()


def read(path, schema, run_id=None, earlier=False):
    """A table with exactly the columns of `schema`.

    Args:
        run_id: read the rows of this run only.
        earlier: columns that it lacks are empty, as in a table of an earlier version.

    Raises:
        TableError: no Parquet file, or one of a newer version.
    """
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise TableError(f"{path} cannot be read as Parquet: {error}") from error
    with file:
        version = int((file.schema_arrow.metadata or {}).get(b"schema_version", b"0"))
        if version > SCHEMA_VERSION:
            raise TableError(
                f"{path}: schema version {version}, made by a newer dlbench; "
                f"this one reads up to {SCHEMA_VERSION}"
            )
        missing = [name for name in schema.names if name not in file.schema_arrow.names]
        if missing and not earlier:
            raise TableError(f"{path}: columns missing: {', '.join(missing)}")
        columns = [name for name in schema.names if name not in missing]
        if run_id is None:
            found = file.read(columns=columns, use_threads=False)
        else:
            chosen = [("run_id", "=", run_id)]
            found = pq.read_table(path, columns=columns, filters=chosen, use_threads=False)
    for name in missing:
        found = found.append_column(name, pa.nulls(len(found), schema.field(name).type))
    return found.select(schema.names).cast(schema)


def from_csv(table):
    """A table as it was before `write_csv` made its texts harmless."""
    plain = {
        name: pc.replace_substring_regex(column, f"^'({FORMULA})", r"\1")
        if pa.types.is_string(column.type)
        else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pa.table(plain)


def _harmless(column):
    """Texts that begin as formulas do, behind an apostrophe; numbers are none."""
    if not pa.types.is_string(column.type):
        return column
    formula = pc.and_(
        pc.match_substring_regex(column, f"^{FORMULA}"),
        pc.invert(pc.match_substring_regex(column, NUMBER)),
    )
    return pc.if_else(formula, pc.binary_join_element_wise("'", column, ""), column)


def write_csv(path, table):
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
