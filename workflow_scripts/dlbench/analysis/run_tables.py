"""The tables of a single run: its steps, samples and evaluations.

A stamp beside them says of which log they are and how many bytes each has. It is read for every
run whenever results are collected, which takes a tenth of the time of opening the tables. What else
is wrong with a table shows when it is read; then all are made again.
"""

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from dlbench import Error
from dlbench.common.files import read_json, write_json, written_whole
from dlbench.log import event_fields
from dlbench.records import parse_run, run_record
from dlbench.tables import parquet_files
from dlbench.tables.cells import Row
from dlbench.tables.run_columns import RUN_TABLES

ROW_GROUP = 20_000  # rows that wait to be written
STAMP = ".tables.json"
FILES = (*(f"{name}.parquet" for name in RUN_TABLES), STAMP)


def ensure_run_tables(run_id: str, log_sha256: str, results: Path = run_record.RESULTS) -> None:
    """Make a run's tables (RUN_TABLES) from its logs unless all are there and of this log."""
    place = run_record.folder(run_id, results)
    try:
        if read_json(f"{place}/{STAMP}") == _stamp(place, log_sha256):
            return
    except FileNotFoundError:
        pass  # a table is missing
    _make_run_tables(run_id, place, log_sha256)
    write_json(place / STAMP, _stamp(place, log_sha256))


def _stamp(place, log_sha256):
    sizes = {name: os.stat(f"{place}/{name}.parquet").st_size for name in RUN_TABLES}
    version = parquet_files.SCHEMA_VERSION
    # Those of earlier versions have no digests of themselves.
    made = {"log_sha256": log_sha256, "schema_version": version, "digest": parquet_files.DIGEST}
    return made | {"bytes": sizes}


def run_table(place: Path, name: str) -> pa.Table:
    """One of the tables of a run, which are made again from its whole logs if it is damaged.

    Args:
        place: the folder of the run, where `ensure_run_tables` has made it.

    Raises:
        TableError: it is damaged, and so are the run's record or logs, or the folder cannot be
            written.
    """
    path = place / f"{name}.parquet"
    try:
        return parquet_files.read(path, RUN_TABLES[name])
    except parquet_files.TableError as damage:
        try:
            record = _record_of_whole_logs(place)
            _make_run_tables(record["run_id"], place, record["log_sha256"])
        except (Error, OSError) as error:
            raise parquet_files.TableError(f"{damage}; from its log: {error}") from error
        return parquet_files.read(path, RUN_TABLES[name])


def table_of_logs(place: Path, name: str) -> pa.Table:
    """One of the tables of a run, from its whole logs; nothing is written.

    Raises:
        RecordError: the run's record or logs are damaged.
    """
    record = _record_of_whole_logs(place)
    return parquet_files.table(_rows(record["run_id"], place)[name], RUN_TABLES[name])


def _record_of_whole_logs(place):
    record = run_record.read(place / "run.json")
    run_record.check_files(place, record, content=True)
    return record


def evals_of(run_id: str, log: Path) -> Iterator[Row]:
    """Rows of the table of evaluations, from a log.

    Searching a log that was read just now takes a tenth of the time of opening the run's table.
    """
    with open(log, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        events = [event_fields.parse_event(line) for line in _lines(content, b'{"event": "eval", ')]
    for event in events:
        yield {"run_id": run_id, **_values(event)}


def _lines(content, beginning):
    """Yield the whole lines that begin so; the first line of the log is not looked at."""
    begin = content.find(b"\n" + beginning)
    while begin >= 0:
        end = content.find(b"\n", begin + 1)
        if end < 0:
            return  # a write that a kill cut short
        yield content[begin + 1 : end]
        begin = content.find(b"\n" + beginning, end)


def _make_run_tables(run_id, place, log_sha256):
    rows = _rows(run_id, place)
    for name, schema in RUN_TABLES.items():
        path = place / f"{name}.parquet"
        parquet_files.write(path, rows[name], schema, run_id=run_id, log_sha256=log_sha256)


def _rows(run_id, place):
    """{name: rows} of a run's tables, from its logs."""
    logs = parse_run.rank_logs(place / "train.jsonl")
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
    for place, (loss, rate) in enumerate(zip(losses[:-1], rates, strict=False)):
        step = event["step"] - len(losses) + 1 + place
        yield {"step": step, "loss": loss, "learning_rate": rate, **inner}
    yield values


def sample_rows(sample: dict[str, Any]) -> Iterator[Row]:
    """Yield a row for the process and its node, and a row for each of its GPUs."""
    values = _values(sample)
    gpus = values.pop("gpus", None) or []
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
    """Yield a function that appends rows to a Parquet file, which is whole afterwards."""
    rows: list[Row] = []
    empty = parquet_files.table(rows, schema)

    def append(more):
        rows.extend(more)
        if len(rows) >= ROW_GROUP:
            flush()

    def flush():
        if rows:
            parquet.write_table(parquet_files.table(rows, schema))
            rows.clear()

    with written_whole(output) as part, parquet_files.writer(part, empty.schema) as parquet:
        yield append
        flush()
