"""Rows of our tables from the merged logs of a run.

- Throughput is of all devices, over all measured steps. A value that the log states, e.g. a total
  by the clock, takes precedence over the one computed from steps.
- Median, percentile and spread of step times are computed if every step has a row of its own.
- Missing numbers of devices, nodes and batches are computed from the others.
- A row with contradictory numbers is marked (dlbench/study/contradictions.py).
"""

import math
import re
from collections.abc import Container, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dlbench import Error
from dlbench.imports.merging import MergedRun, is_rounded
from dlbench.log import event_log, metrics
from dlbench.records import step_times
from dlbench.study import contradictions, item_names
from dlbench.tables import parquet_files, run_columns, table_columns, table_names
from dlbench.tables.metric_columns import METRICS

ROWS_AT_ONCE = 2**14  # steps in a row group, so that a long run is never in memory twice


def complete(run: MergedRun, fields: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Add the user's columns to a run, compute missing ones, and let its importers complete it.

    Args:
        fields: the user's parsed columns by origin, e.g. {"--fields": {"site": "far"}}.
        where: names the run in error messages.

    Raises:
        Error: a user's column differs from the log's, or from that of another origin; a metric is
            wrong or comes twice.
    """
    try:
        metrics.check(run.metrics)
    except Error as error:
        raise Error(f"{where}: {error}") from None
    origins = {name: f"the log ({source.place})" for name, source in run.source_of.items()}
    for origin, columns in fields.items():
        for name, value in columns.items():
            known = run.columns.get(name)
            if known is None:
                run.columns[name], origins[name] = value, origin
            elif not (is_rounded(known, value) or is_rounded(value, known)):
                raise Error(f"{where}: {name} is {value} by {origin}, {known} by {origins[name]}")
    _fill_in(run.columns)
    for source in run.sources:
        if source.imported.complete:
            source.imported.complete(run.columns)
            source.imported.complete = None  # frees the parts of the log that it refers to


def _fill_in(columns):
    for whole, part, count in (
        ("devices", "devices_per_node", "nodes"),
        ("global_batch", "batch_per_device", "devices"),
    ):
        known = [columns.get(name) for name in (whole, part, count)]
        if known[0] is None and None not in known[1:]:
            columns[whole] = known[1] * known[2]
        for name, value, other in ((part, known[1], known[2]), (count, known[2], known[1])):
            if value is None and known[0] and other and known[0] % other == 0:
                columns[name] = known[0] // other
    if columns.get("devices") == 1:
        columns.setdefault("nodes", 1)
        columns.setdefault("devices_per_node", 1)
    started, ended = columns.get("started_at"), columns.get("ended_at")
    if started and ended and columns.get("duration_s") is None and ended >= started:
        columns["duration_s"] = (ended - started).total_seconds()


def run_row(
    run: MergedRun, run_id: str, digest: str | None, import_name: str | None
) -> dict[str, Any]:
    """The row of the runs table for a completed run.

    Args:
        digest: SHA-256 of the run's logs.
        import_name: the study, unless a log or the user gives another one.
    """
    notes = run.notes
    row = _from_steps(run) | _from_evals(run.evals) | run.columns
    for rate in ("images_per_second", "step_time_mean_s"):
        if row.get(rate) is not None and not (math.isfinite(row[rate]) and row[rate] > 0):
            notes.append(f"{rate} is {row.pop(rate)} in the log: no throughput")
    unknown = sorted(row.keys() - set(table_columns.RUNS.names))
    if unknown:
        raise ValueError(f"{run.kind}: no columns {', '.join(unknown)} of runs")
    row = contradictions.marked(row)
    shape, per_second, devices = map(row.get, ("item_shape", "images_per_second", "devices"))
    return {
        **item_names.columns(shape, per_second, devices),
        **row,
        "run_id": run_id,
        "study": row.get("study", import_name),
        "status": run.status,
        "message": run.message,
        "timing_source": run.kind,
        "source": _places(run.sources),
        "notes": "; ".join(notes) or None,
        "log_sha256": digest,
    }


def _places(sources):
    """Paths of logs with lines; a folder is repeated only where it changes."""
    places, folder = [], None
    for source in sources:
        source_folder = source.path.rpartition("/")[0]
        places.append(source.short_place if source_folder == folder else source.place)
        folder = source_folder
    return " + ".join(places)


def readable_id(run: MergedRun) -> str:
    """The readable part of a run's id, e.g. resnet50-imagenet-b64-parameter_server-x4-udocker-r1.

    It differs from `Run.id` and `Run.label`: a log may lack any field of a run, and a missing field
    is left out instead of replaced by its default.
    """
    columns, parts = run.columns, []
    for name, prefix in (
        ("model", ""),
        ("dataset", ""),
        ("batch_per_device", "b"),
        ("mode", ""),
        ("strategy", ""),
        ("devices", "x"),
        ("runtime", ""),
        ("repeat", "r"),
    ):
        value = columns.get(name)
        if value is not None and (name, value) != ("mode", "train"):
            parts.append(f"{prefix}{value}")
    text = "-".join(parts) or run.sources[0].kind
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text)[:120]


def _from_steps(run):
    """Columns computed from the rows of steps."""
    steps, columns = run.steps, {}
    if len(steps) == 0:
        return columns
    times, windows = np.asarray(steps.step_time_s), np.asarray(steps.window_steps)
    warm_up = np.asarray(steps.warm_up, bool)
    burn_in = int(windows[warm_up].sum())
    measured = ~warm_up & (windows != 0) & np.isfinite(times)
    times, windows = times[measured], windows[measured]
    if burn_in:
        columns["burn_in_steps"] = burn_in
    if math.isfinite(steps.loss[-1]):
        columns["final_loss"] = steps.loss[-1]
    if not len(times):
        return columns
    count = int(windows.sum())
    columns["steps_measured"] = count
    if times.min() == times.max():  # without the rounding of sums
        columns["step_time_mean_s"] = float(times[0])
    else:
        columns["step_time_mean_s"] = math.fsum(memoryview(times * windows)) / count
    first = steps.step[0] - (steps.window_steps[0] or 1) + 1
    if count == len(times) > 1 and count + burn_in == steps.step[-1] - first + 1:  # of every step
        columns |= step_times.summary(times.tolist())
    if run.columns.get("global_batch") and columns["step_time_mean_s"]:  # 0 where it was rounded
        columns["images_per_second"] = run.columns["global_batch"] / columns["step_time_mean_s"]
    return columns


def _from_evals(evals):
    """The scores of the last evaluation; none of several sets of which none is `validation`."""
    held_out = [row for row in evals if row.get("split") == "validation"] or evals
    last = held_out[-1] if len({row.get("split") for row in held_out}) == 1 else {}
    return {
        name: last[name]
        for name in event_log.SCORES
        if last.get(name) is not None and math.isfinite(last[name])
    }


def parse_item_shape(text: str | None) -> list[int] | None:
    """The numbers of an `item_shape`; None if it is unknown or no shape.

    >>> parse_item_shape("224x224x3"), parse_item_shape(None)
    ([224, 224, 3], None)
    """
    if not text or not re.fullmatch(r"\d{1,9}(?:x\d{1,9})*", text):
        return None
    return [int(number) for number in text.split("x")]


def run_tables(
    run: MergedRun, run_id: str, names: Container[str] = table_names.OF_IMPORT
) -> Iterator[tuple[str, pa.Table]]:
    """Yield (name, rows) of the run's tables with rows; ROWS_AT_ONCE steps at a time.

    Args:
        names: names of the tables to yield.
    """
    if "steps" in names:
        for first in range(0, len(run.steps), ROWS_AT_ONCE):
            piece = slice(first, first + ROWS_AT_ONCE)
            yield "steps", with_run_id(_steps_table(run.steps, piece), run_id)
    if "evals" in names and run.evals:
        rows = [{"run_id": run_id, **row} for row in run.evals]
        yield "evals", parquet_files.table(rows, run_columns.EVALS)
    if "metrics" in names and run.metrics:
        rows = [{"run_id": run_id, **row} for row in run.metrics]
        yield "metrics", parquet_files.table(rows, METRICS)
    if "samples" in names and run.samples:
        rows = [{"run_id": run_id, "rank": 0, **row} for row in run.samples]
        yield "samples", parquet_files.table(rows, run_columns.SAMPLES)


def _steps_table(steps, piece):
    """A slice of the steps as a table, without values of run_id."""
    arrays = {
        "step": steps.step,
        "step_time_s": steps.step_time_s,
        "loss": steps.loss,
        "warm_up": steps.warm_up,
        "window_steps": steps.window_steps,
        **steps.more,
    }
    columns = {name: np.asarray(values)[piece] for name, values in arrays.items()}
    size = len(columns["step"])
    columns.setdefault("rank", np.zeros(size, np.int32))
    columns["warm_up"] = columns["warm_up"] != 0
    absent = {"window_steps": columns["window_steps"] == 0}
    schema = parquet_files.table([], run_columns.STEPS).schema
    filled = [
        pa.array(columns[name], type_, mask=absent.get(name), from_pandas=True)  # nan: null
        if name in columns
        else pa.nulls(size, type_)
        for name, type_ in zip(schema.names, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(filled, schema=schema)


def with_run_id(table: pa.Table, run_id: str) -> pa.Table:
    """A table of steps, evaluations or samples with the run's id in all rows."""
    indices = pa.repeat(pa.scalar(0, pa.int32()), len(table))
    column = pa.DictionaryArray.from_arrays(indices, pa.array([run_id]))
    place = table.schema.get_field_index("run_id")
    return table.set_column(place, table.schema.field(place), column)
