"""Everything that was measured, as one hive-partitioned Parquet dataset.

    FOLDER/{runs,steps,evals,samples,metrics}/site=S/model=M/strategy=T/part-0.parquet

- Rows are of runs with valid records, failed ones included; run_id joins the tables.
- Columns and units are those of dlbench/tables/table_columns.py and run_columns.py, without the
  columns that name the folders.
- One run is read at a time; the tables of short runs are gathered into row groups.
- Values in the names of folders are percent-encoded. Readers guess their types unless these are
  given: a site called 01 is text. `open_table` gives them to pyarrow; DuckDB takes
  hive_types_autocast = false, and polars hive_schema.
"""

import contextlib
import itertools
import os
import shutil
import sys
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.dataset

from dlbench import Error
from dlbench.analysis import run_tables
from dlbench.common.files import write_json
from dlbench.records import run_record
from dlbench.results import export_runs, run_rows
from dlbench.study.config import Study
from dlbench.tables import parquet_files, run_columns, table_columns, table_names
from dlbench.tables.metric_columns import METRICS

PARTITION = ("site", "model", "strategy")
TABLES = {"runs": table_columns.RUNS, **run_columns.RUN_TABLES, "metrics": METRICS}
ROW_GROUP = 100_000  # rows at which a row group is written, if no run has more
MAX_WAITING = 500  # runs without so many rows
MARK = "_dlbench.json"  # readers leave out names that begin so


def export(study: Study, output: Path | str) -> None:
    """Write the dataset of the runs of a study that have results, atomically.

    Args:
        study: the Study.
        output: folder of the dataset; an earlier one is replaced.

    Raises:
        Error: the folder exists and is no exported dataset.
    """
    output = Path(output)
    if output.exists() and not (output / MARK).is_file():
        raise Error(f"{output} exists and is no exported dataset; choose another folder")
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        exported = _write(study, part)
        write_json(part / MARK, {"study": study.name, "runs": exported, "partition": PARTITION})
        _replace_folder(part, output)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    planned = len(study.without_probes)
    missing = planned - exported
    note = f", {missing} without a valid result" if missing else ""
    print(f"{output}: {exported} of {planned} runs{note}", file=sys.stderr)


def schema(name: str) -> pa.Schema:
    """The columns of a table's files: those of the table without those that name the folders."""
    fields = [field for field in TABLES[name] if field.name not in PARTITION]
    return parquet_files.with_metadata(pa.schema(fields))


def open_table(folder: Path | str, name: str) -> pyarrow.dataset.Dataset:
    """Open a table of an exported dataset as a pyarrow Dataset, with its types and units.

    Raises:
        Error: there is no such dataset.
    """
    path = Path(folder) / name
    if not path.is_dir():
        raise Error(f"{path}: no table of an exported dataset")
    keys = pa.schema([(key, pa.string()) for key in PARTITION])
    return pyarrow.dataset.dataset(
        path,
        schema=pa.schema([*schema(name), *keys]),
        format="parquet",
        partitioning=pyarrow.dataset.partitioning(keys, flavor="hive"),
    )


def _write(study, part):
    """Write all tables. Returns the number of runs."""
    for name in TABLES:
        (part / name).mkdir(parents=True)
    results = filter(run_rows.is_result, export_runs.rows(study))
    rows = sorted(results, key=lambda row: (*_key(row), row["run_id"]))
    for key, group in itertools.groupby(rows, _key):
        group = list(group)
        with _writer(part, "runs", key) as runs:
            plain = [{k: v for k, v in row.items() if k not in PARTITION} for row in group]
            runs.write_table(parquet_files.table(plain, schema("runs")))
        _write_run_tables(part, key, group)
    return len(rows)


def _key(row):
    return tuple(row[name] for name in PARTITION)


def _write_run_tables(part, key, rows):
    with contextlib.ExitStack() as stack:
        writers = {
            name: stack.enter_context(_table_appender(part, name, key))
            for name in table_names.OF_IMPORT
        }
        for row in rows:
            run_tables.ensure_run_tables(row["run_id"], row["log_sha256"])
            folder = run_record.folder(row["run_id"])
            for name in run_columns.RUN_TABLES:
                writers[name](run_tables.run_table(folder, name))
            metrics = run_rows.metrics(run_record.read(folder / "run.json"))
            writers["metrics"](parquet_files.table(metrics, METRICS))


@contextlib.contextmanager
def _table_appender(part, name, key):
    """Yield a function that appends a run's table; small ones share a row group."""
    waiting = []

    def append(table):
        waiting.append(table)
        if sum(table.num_rows for table in waiting) >= ROW_GROUP or len(waiting) >= MAX_WAITING:
            flush()

    def flush():
        gathered = pa.concat_tables(waiting).unify_dictionaries().combine_chunks()
        waiting.clear()
        if gathered.num_rows:
            writer.write_table(gathered.replace_schema_metadata(schema(name).metadata))

    with _writer(part, name, key) as writer:
        yield append
        if waiting:
            flush()


def _writer(part, name, key):
    folders = (
        f"{field}={quote(value, safe='')}" for field, value in zip(PARTITION, key, strict=True)
    )
    path = part.joinpath(name, *folders)
    path.mkdir(parents=True)
    return parquet_files.writer(path / "part-0.parquet", schema(name))


def _replace_folder(part, output):
    """Move a folder to a place where an earlier one may be; for a moment there is neither."""
    earlier = part.with_name(f"{part.name}.earlier")
    if output.exists():
        output.rename(earlier)
    part.rename(output)
    shutil.rmtree(earlier, ignore_errors=True)
