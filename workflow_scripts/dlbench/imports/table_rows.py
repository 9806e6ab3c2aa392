"""Rows of our tables from the merged logs of a run.

- Throughput is of all devices, over all measured steps. A value that the log states itself, such
  as a total by the clock, takes precedence over the one that follows from steps.
- Median, percentile and scatter of step times are known if every step has a row of its own.
- A third number that follows from two of devices, nodes and batches is filled in.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dlbench import Error
from dlbench.imports.merging import MergedRun, is_rounded
from dlbench.log import event_log
from dlbench.records import step_times
from dlbench.tables import parquet_files, run_columns, table_columns


def complete(run: MergedRun, fields: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Add to a run the user's columns and those that follow, then let its importers complete it.

    Args:
        fields: the user's columns by their origin, as {"--fields": {"site": "far"}}; parsed.
        where: the run in error messages.

    Raises:
        Error: a user's column differs from the log's, or from that of another origin.
    """
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
    began, ended = columns.get("started_at"), columns.get("ended_at")
    if began and ended and columns.get("duration_s") is None and ended >= began:
        columns["duration_s"] = (ended - began).total_seconds()


def run_row(
    run: MergedRun, run_id: str, digest: str | None, import_name: str | None
) -> dict[str, Any]:
    """The row of the runs table of a completed run.

    Args:
        digest: SHA-256 of its logs.
        import_name: the study, unless a log or the user names another.
    """
    notes = run.notes
    row = _from_steps(run) | _from_evals(run.evals) | run.columns
    for rate in ("images_per_second", "step_time_mean_s"):
        if row.get(rate) is not None and not (math.isfinite(row[rate]) and row[rate] > 0):
            notes.append(f"{rate} is {row.pop(rate)} in the log: no throughput")
    unknown = sorted(row.keys() - set(table_columns.RUNS.names))
    if unknown:
        raise ValueError(f"{run.kind}: no columns {', '.join(unknown)} of runs")
    return {
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
    """Files with their lines; the folder is repeated only where it changes."""
    shown, folder = [], None
    for source in sources:
        here = source.path.rpartition("/")[0]
        shown.append(source.short_place if here == folder else source.place)
        folder = here
    return " + ".join(shown)


def run_words(run: MergedRun) -> str:
    """Readable words of a run's id, such as resnet50-imagenet-b64-parameter_server-4-udocker-r1."""
    columns, words = run.columns, []
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
            words.append(f"{prefix}{value}")
    text = "-".join(words) or run.sources[0].kind
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text)[:120]


def _from_steps(run):
    """Columns that follow from the rows of steps."""
    steps, columns = run.steps, {}
    if len(steps) == 0:
        return columns
    burn_in, times, windows = 0, [], []
    for time, window, warm_up in zip(
        steps.step_time_s, steps.window_steps, steps.warm_up, strict=True
    ):
        if warm_up:
            burn_in += window
        elif window and math.isfinite(time):
            times.append(time)
            windows.append(window)
    if burn_in:
        columns["burn_in_steps"] = burn_in
    if math.isfinite(steps.loss[-1]):
        columns["final_loss"] = steps.loss[-1]
    if not times:
        return columns
    count = sum(windows)
    columns["steps_measured"] = count
    if min(times) == max(times):  # without the rounding of sums
        columns["step_time_mean_s"] = times[0]
    else:
        total_s = math.fsum(time * window for time, window in zip(times, windows, strict=True))
        columns["step_time_mean_s"] = total_s / count
    first = steps.step[0] - (steps.window_steps[0] or 1) + 1
    if count == len(times) > 1 and count + burn_in == steps.step[-1] - first + 1:  # of every step
        columns |= step_times.summary(times)
    if run.columns.get("global_batch"):
        columns["images_per_second"] = run.columns["global_batch"] / columns["step_time_mean_s"]
    return columns


def _from_evals(evals):
    last = evals[-1] if evals else {}
    return {
        name: last[name]
        for name in event_log.SCORES
        if last.get(name) is not None and math.isfinite(last[name])
    }


def parse_item_shape(text: str | None) -> list[int] | None:
    """The numbers of an `item_shape`; None if it is unknown or another text.

    >>> parse_item_shape("224x224x3"), parse_item_shape(None)
    ([224, 224, 3], None)
    """
    if not text or not re.fullmatch(r"\d{1,9}(?:x\d{1,9})*", text):
        return None
    return [int(number) for number in text.split("x")]


def steps_table(run: MergedRun, run_id: str) -> pa.Table:
    """The rows of the table of steps of a run."""
    steps, size = run.steps, len(run.steps)
    windows = np.asarray(steps.window_steps)
    columns = {
        "rank": pa.repeat(pa.scalar(0, pa.int32()), size),
        "step": pa.array(np.asarray(steps.step)),
        "step_time_s": _numbers(steps.step_time_s),
        "loss": _numbers(steps.loss),
        "warm_up": pa.array(np.asarray(steps.warm_up).astype(bool)),
        "window_steps": pa.array(windows, mask=windows == 0),
        **{name: _numbers(values) for name, values in steps.more.items()},
    }
    arrays = [
        columns[field.name].cast(field.type)
        if field.name in columns
        else pa.nulls(size, field.type)
        for field in run_columns.STEPS
    ]
    schema = parquet_files.table([], run_columns.STEPS).schema
    return with_run_id(pa.Table.from_arrays(arrays, schema=schema), run_id)


def evals_table(run: MergedRun, run_id: str) -> pa.Table:
    """The rows of the table of evaluations of a run."""
    return parquet_files.table([{"run_id": run_id, **row} for row in run.evals], run_columns.EVALS)


def samples_table(run: MergedRun, run_id: str) -> pa.Table:
    """The rows of the table of samples of a run."""
    rows = [{"run_id": run_id, "rank": 0, **row} for row in run.samples]
    return parquet_files.table(rows, run_columns.SAMPLES)


def with_run_id(table: pa.Table, run_id: str) -> pa.Table:
    """A table of steps, evaluations or samples with the id of the run that all its rows are of."""
    indices = pa.repeat(pa.scalar(0, pa.int32()), len(table))
    column = pa.DictionaryArray.from_arrays(indices, pa.array([run_id]))
    place = table.schema.get_field_index("run_id")
    return table.set_column(place, table.schema.field(place), column)


def _numbers(values):
    """An array of numbers in which nan is null."""
    return pa.array(np.asarray(values), from_pandas=True)
