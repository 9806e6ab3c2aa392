"""The tables of a single run: its steps, samples and evaluations.

A stamp file beside them has the digest of their log and the size of each. Whoever collects results
reads it for every run, in a tenth of the time that opening the tables takes. Other damage is found
when a table is read; then all are made again.
"""

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from dlbench import Error
from dlbench.common.files import atomic_write, read_json, write_json
from dlbench.log import event_fields
from dlbench.records import parse_run, run_record
from dlbench.tables import parquet_files
from dlbench.tables.cells import Row
from dlbench.tables.table_columns import RUN_TABLES

ROW_GROUP = 20_000  # rows that wait to be written
STAMP = ".tables.json"
FILES = (*(f"{name}.parquet" for name in RUN_TABLES), STAMP)


def ensure_run_tables(run_id: str, log_sha256: str, results: Path = run_record.RESULTS) -> None:
    """Make a run's tables (RUN_TABLES) from its logs, unless all exist and are of this log."""
    folder = run_record.folder(run_id, results)
    try:
        if read_json(f"{folder}/{STAMP}") == _stamp(folder, log_sha256):
            return
    except FileNotFoundError:
        pass  # a table is missing
    _make_run_tables(run_id, folder, log_sha256)
    write_json(folder / STAMP, _stamp(folder, log_sha256))


def _stamp(folder, log_sha256):
    sizes = {name: os.stat(f"{folder}/{name}.parquet").st_size for name in RUN_TABLES}
    version = parquet_files.SCHEMA_VERSION
    # Those of earlier versions have no digests of themselves.
    origin = {"log_sha256": log_sha256, "schema_version": version, "digest": parquet_files.DIGEST}
    return origin | {"bytes": sizes}


def run_table(folder: Path, name: str) -> pa.Table:
    """A table of a run that `ensure_run_tables` made; if it is damaged, all are made again.

    Raises TableError: the run's record or logs are damaged, too, or the folder cannot be written.
    """
    path = folder / f"{name}.parquet"
    try:
        return parquet_files.read(path, RUN_TABLES[name])
    except parquet_files.TableError as damage:
        try:
            record = run_record.read_whole(folder, content=True)
            _make_run_tables(record["run_id"], folder, record["log_sha256"])
        except (Error, OSError) as error:
            raise parquet_files.TableError(f"{damage}; from its log: {error}") from error
        return parquet_files.read(path, RUN_TABLES[name])


def table_from_logs(folder: Path, name: str) -> pa.Table:
    """A table of a run, made from its intact logs and not written.

    Raises RecordError: the run's record or logs are damaged.
    """
    record = run_record.read_whole(folder, content=True)
    return parquet_files.table(_rows(record["run_id"], folder)[name], RUN_TABLES[name])


def eval_rows(run_id: str, log: Path) -> Iterator[Row]:
    """Rows of the table of evaluations, from a log.

    Searching a log that was read just now takes a tenth of the time of opening the run's table.
    """
    with open(log, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        events = [event_fields.parse_event(line) for line in _lines(content, b'{"event": "eval", ')]
    for event in events:
        yield {"run_id": run_id, **_values(event)}


def _lines(content, prefix):
    """Yield the complete lines with a prefix, but for the first line of the log."""
    start = content.find(b"\n" + prefix)
    while start >= 0:
        end = content.find(b"\n", start + 1)
        if end < 0:
            return  # a write that a kill cut short
        yield content[start + 1 : end]
        start = content.find(b"\n" + prefix, end)


def _make_run_tables(run_id, folder, log_sha256):
    rows = _rows(run_id, folder)
    for name, schema in RUN_TABLES.items():
        path = folder / f"{name}.parquet"
        parquet_files.write(path, rows[name], schema, run_id=run_id, log_sha256=log_sha256)


def _rows(run_id, folder):
    """{name: rows} of a run's tables, from its logs."""
    logs = parse_run.rank_logs(folder / "train.jsonl")
    return {
        "steps": [
            {"run_id": run_id, "rank": rank, **step}
            for rank, log in enumerate(logs)
            for event in log.steps
            for step in step_rows(event)
        ],
        "evals": [{"run_id": run_id, **_values(event)} for event in logs[0].evals],
        "samples": [
            {"run_id": run_id, "rank": rank, **row}
            for rank, log in enumerate(logs)
            for sample in log.samples
            for row in sample_rows(sample)
        ],
    }


def step_rows(event: dict[str, Any]) -> Iterator[Row]:
    """Yield a row for each step of a window; all but the last have no time of their own."""
    values = _values(event)
    losses = values.pop("losses", [])
    rates = values.pop("learning_rates", [values.get("learning_rate")] * len(losses))
    inner = {name: values[name] for name in ("epoch", "warm_up") if name in values}
    for index, (loss, rate) in enumerate(zip(losses[:-1], rates, strict=False)):
        step = event["step"] - len(losses) + 1 + index
        yield {"step": step, "loss": loss, "learning_rate": rate, **inner}
    yield values


def sample_rows(sample: dict[str, Any]) -> Iterator[Row]:
    """Yield a row for the process and its node, and a row for each of its GPUs."""
    values = _values(sample)
    gpus = values.pop("gpus", None) or []
    values.pop("xids", None)  # in the notes of the run
    yield values
    for gpu in gpus:
        reasons = gpu["throttle_reasons"]
        yield {
            **gpu,
            "t_s": values["t_s"],
            "gpu": str(gpu["gpu"]),
            "throttle_reasons": None if reasons is None else "+".join(reasons),
        }


def _values(event):
    return {key: value for key, value in event.items() if key != "event"}


@contextlib.contextmanager
def appender(output: Path, schema: pa.Schema) -> Iterator[Callable[[Iterable[Row]], None]]:
    """Yield a function that appends rows to a Parquet file, which is complete at the end."""
    rows: list[Row] = []
    empty = parquet_files.table(rows, schema)

    def append(new_rows):
        rows.extend(new_rows)
        if len(rows) >= ROW_GROUP:
            flush()

    def flush():
        if rows:
            parquet.write_table(parquet_files.table(rows, schema))
            rows.clear()

    with atomic_write(output) as part, parquet_files.writer(part, empty.schema) as parquet:
        yield append
        flush()
