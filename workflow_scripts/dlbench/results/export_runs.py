"""What a study has measured so far: its tables of runs and coverage, and everything as a dataset.

- The columns are those of results/tables/ (dlbench/tables/table_columns.py). Nothing is locked: a
  run that ends meanwhile may be in a table or not.
- The table of runs has a row for each run with a valid record, failed ones included; that of
  coverage one for each combination of the study, with what it waits for or why it is stale
  (dlbench/plan/standing.py).
- The dataset is hive-partitioned:
  FOLDER/{runs,steps,evals,samples,metrics}/site=S/model=M/strategy=T/part-0.parquet, without the
  columns that name the folders; run_id joins the tables. One run is read at a time; the tables of
  short runs are gathered into row groups.
- Values in the names of folders are percent-encoded. Readers guess their types unless these are
  given: a site called 01 is text. `open_table` gives them to pyarrow; DuckDB takes
  hive_types_autocast = false, and polars hive_schema.
"""

import contextlib
import itertools
import math
import os
import shutil
import sys
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.dataset

from dlbench import Error
from dlbench.analysis import run_tables
from dlbench.common.files import write_json
from dlbench.plan import skipping, standing
from dlbench.records import judgement, run_record
from dlbench.records.judgement import State
from dlbench.results import collect_runs, run_rows
from dlbench.study.config import Study
from dlbench.tables import cells, parquet_files, table_columns
from dlbench.tables.cells import Row
from dlbench.tables.table_columns import METRICS


def export(study: Study, output: Path | str, statuses: Collection[str]) -> None:
    """Write the runs table with the runs of some statuses that have results, atomically.

    Raises Error: the path ends in something else than .csv, .parquet or .json.
    """
    path = _checked_path(output)
    planned = len(study.without_probes)
    standing_rows = list(filter(run_rows.is_result, rows(study)))
    chosen = [row for row in standing_rows if row["status"] in statuses]
    WRITERS[path.suffix](path, chosen, table_columns.RUNS)
    others = {
        "with another status": len(standing_rows) - len(chosen),
        "without a valid result": planned - len(standing_rows),
    }
    notes = (f", {count} {what}" for what, count in others.items() if count)
    print(f"{path}: {len(chosen)} of {planned} runs{''.join(notes)}", file=sys.stderr)


def export_coverage(study: Study, output: Path | str) -> None:
    """Write the current table of coverage of a study, atomically.

    Raises Error: the path ends in something else.
    """
    path = _checked_path(output)
    covered = coverage(study)
    WRITERS[path.suffix](path, covered, table_columns.COVERAGE)
    print(f"{path}: {len(covered)} combinations", file=sys.stderr)


def coverage(study: Study) -> list[Row]:
    """Rows of the table of coverage, in the order of the runs' ids; what is excluded at the end."""
    standings = sorted(standing.examine(study), key=lambda one: one.run.id)
    return [
        {
            "run_id": one.run.id,
            "combination": study.labels[one.run.id],
            "status": one.state,
            "reason": "; ".join(filter(None, (one.message, one.missed))),
        }
        for one in standings
        if not one.run.probe
    ] + collect_runs.excluded(study)


def _checked_path(output):
    output = Path(output)
    if output.suffix not in WRITERS:
        raise Error(f"{output}: expected a name that ends in {', '.join(WRITERS)}")
    return output


def rows(study: Study) -> list[Row]:
    """Rows of the runs table, in the order of the runs' ids.

    Raises Error: there are none, but results of another config.
    """
    standing_rows = list(_rows(study))
    if not standing_rows and any(run_record.RESULTS.glob("runs/*/run.json")):
        raise Error(
            f"none of the {len(study.runs)} runs of {study.name} has a valid result, but others "
            f"in {run_record.RESULTS} have: is their config missing (--configfile)?"
        )
    return run_rows.with_shared(standing_rows)


def _rows(study):
    devices = skipping.devices(study.site)
    basis = standing.basis_of(study).without_limit
    for run in sorted(study.without_probes, key=lambda run: run.id):
        can_run = not skipping.skip_reason(run, devices, study)
        if judgement.state(run, can_run, basis)[0] is not State.CURRENT:
            continue
        try:
            record = run_record.read(run_record.folder(run.id) / "run.json")
        except run_record.RecordError:
            continue  # deleted meanwhile
        yield run_rows.row(record, study, devices.kind)


def _write_csv(output, rows, schema):
    parquet_files.write_csv(output, parquet_files.table(rows, schema))


def _write_json(output, rows, schema):
    plain = parquet_files.table(rows, schema).to_pylist()
    write_json(output, [{name: _plain(value) for name, value in row.items()} for row in plain])


def _plain(value):
    if isinstance(value, datetime):
        return value.isoformat()
    # JSON has no nan.
    return None if isinstance(value, float) and not math.isfinite(value) else value


WRITERS: dict[str, Callable[..., None]] = {
    ".csv": _write_csv,
    ".parquet": parquet_files.write,
    ".json": _write_json,
}

PARTITION = ("site", "model", "strategy")
TABLES = {"runs": table_columns.RUNS, **table_columns.RUN_TABLES, "metrics": METRICS}
ROW_GROUP = 100_000  # rows at which a row group is written, if no run has more
MAX_WAITING = 500  # runs without so many rows
MARK = "_dlbench.json"  # readers leave out names that begin so


def export_dataset(study: Study, output: Path | str) -> None:
    """Write the dataset of the runs of a study that have results, atomically.

    An earlier one in the folder `output` is replaced. Raises Error: it holds something else.
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

    Raises Error: there is no such dataset.
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
    results = filter(run_rows.is_result, rows(study))
    ordered = sorted(results, key=lambda row: (*_key(row), row["run_id"]))
    for key, group in itertools.groupby(ordered, _key):
        group = list(group)
        with _writer(part, "runs", key) as runs:
            plain = [{k: v for k, v in row.items() if k not in PARTITION} for row in group]
            runs.write_table(parquet_files.table(plain, schema("runs")))
        _write_run_tables(part, key, group)
    return len(ordered)


def _key(row):
    return tuple(row[name] for name in PARTITION)


def _write_run_tables(part, key, rows):
    with contextlib.ExitStack() as stack:
        writers = {
            name: stack.enter_context(_table_appender(part, name, key)) for name in cells.OF_IMPORT
        }
        for row in rows:
            run_tables.ensure_run_tables(row["run_id"], row["log_sha256"])
            folder = run_record.folder(row["run_id"])
            for name in table_columns.RUN_TABLES:
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
