"""Group the logs of one program by run, merge the logs of each run, and make rows of our tables.

- Logs of different kinds in one folder belong to the same run; if each has several runs, these are
  paired from the last run backwards. If the folder has several logs of one kind, each log is a run
  of its own.
- A column comes from the log that has it. Of two numbers that differ by rounding only, the one with
  more digits counts. Of two different values the first log's counts, and the notes have both.
- Steps come from the log with times of the most windows; if several have as many, from the log with
  the throughput.
- Throughput is of all devices, over all measured steps. A value that the log states, e.g. a total
  by the clock, takes precedence over the one computed from steps.
- Median, percentile and spread of step times are computed if every step has a row of its own.
- Missing numbers of devices, nodes and batches are computed from the others.
- A row with contradictory numbers is marked (dlbench/study/contradictions.py).
- Columns that logs lack come from the user: values, or a pattern of paths such as
  `{runtime}_{_}/{dataset}_{model}_{devices}_gpu/{repeat}`, which must match the beginning of a
  path. A column's name in braces takes its value from the path; `_` is ignored. A name matches as
  little as possible, within one part of the path; an integer column matches digits only.
"""

import hashlib
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa

from dlbench import Error
from dlbench.common import phrases
from dlbench.imports import log_lines
from dlbench.imports.importers import Imported, Steps
from dlbench.imports.kinds import KERAS_PARTS
from dlbench.log import event_log, metrics
from dlbench.records import step_times
from dlbench.study import contradictions, wording
from dlbench.tables import cells, parquet_files, table_columns
from dlbench.tables.table_columns import METRICS


@dataclass
class Source:
    """A run as one log has it.

    `kind` is the importer's name, `path` relative to the folder that the user gave, and `identity`
    SHA-256 of the log:index of the run in the log.
    """

    imported: Imported
    kind: str
    path: str
    identity: str

    @property
    def place(self) -> str:
        """The path of the log with the first and last line of the run, as in log.txt:3-70."""
        first, last = self.imported.lines
        return f"{self.path}:{first}" if first == last else f"{self.path}:{first}-{last}"

    @property
    def short_place(self) -> str:
        return self.place.rpartition("/")[2]


@dataclass
class MergedRun:
    """One run, merged from all its logs.

    Attributes:
        columns: values for columns of the runs table.
        source_of: the Source of each column.
        differences: a sentence for each column in which two logs differ.
    """

    sources: list[Source]
    columns: dict[str, Any] = field(default_factory=dict)
    source_of: dict[str, Source] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    @property
    def steps(self) -> Steps:
        return self._steps_source.imported.steps

    @property
    def kind(self) -> str:
        """The kind of the log with the throughput; if no log has it, of the log with the steps."""
        return (self.source_of.get("images_per_second") or self._steps_source).kind

    @property
    def status(self) -> str:
        return self._status_source.imported.status

    @property
    def message(self) -> str:
        return self._status_source.imported.message

    @property
    def evals(self) -> list[dict[str, Any]]:
        """Rows of evaluations from the log with the most; equally many of other logs are merged."""
        rows_by_log = [s.imported.evals for s in self.sources if s.imported.evals]
        most = max(rows_by_log, key=len, default=[])
        merged = [dict(row) for row in most]
        for rows in (rows for rows in rows_by_log if len(rows) == len(most)):
            for row, other in zip(merged, rows, strict=True):
                for name, value in other.items():
                    if name not in row or is_more_exact(value, row[name]):
                        row[name] = value
        return merged

    @property
    def samples(self) -> list[dict[str, Any]]:
        return [row for source in self.sources for row in source.imported.samples]

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of all logs. One that several logs have with equal values is one."""
        metrics: list[dict[str, Any]] = []
        for source in self.sources:
            metrics += [metric for metric in source.imported.metrics if metric not in metrics]
        return metrics

    @property
    def notes(self) -> list[str]:
        notes = list(self.differences)
        for source in self.sources:
            prefix = f"{source.kind}: " if len(self.sources) > 1 else ""
            notes += [f"{prefix}{note}" for note in source.imported.notes]
        if self.steps.nan_from is not None:
            notes.append(f"the loss is nan at step {self.steps.nan_from}")
        if any(self.steps.warm_up) and all(self.steps.warm_up):
            notes.append("all lines of steps are warm-up: none of them is measured")
        return list(dict.fromkeys(notes))

    @property
    def _steps_source(self):
        """The log with times of the most windows; if several, the one with the throughput."""
        if len(self.sources) == 1:
            return self.sources[0]
        exact = self.source_of.get("images_per_second")

        def times(source):
            return sum(map(math.isfinite, source.imported.steps.step_time_s))

        return max(self.sources, key=lambda source: (times(source), source is exact))

    @property
    def _status_source(self):
        """The log whose status counts: if possible one of the training that completed."""

        def order(source):
            imported = source.imported
            of_training = len(imported.steps) > 0 or "images_per_second" in imported.columns
            return not of_training, imported.status != "ok"

        return min(self.sources, key=order)


def group_by_run(logs_by_kind: Mapping[str, list[list[Source]]]) -> list[list[Source]]:
    """Group the logs that one program wrote into one folder. Returns the Sources of each run.

    `logs_by_kind`: for each kind a list of logs; a log is the list of the Sources of its runs.
    """
    sources = [source for logs in logs_by_kind.values() for log in logs for source in log]
    folders = [source.path.rpartition("/")[0].rpartition("/")[2] for source in sources]
    if sorted(folders) == sorted(KERAS_PARTS):
        return [sources]
    if any(len(logs) > 1 for logs in logs_by_kind.values()):
        if len(logs_by_kind) > 1:
            for source in sources:
                source.imported.notes.append("which logs of its folder go with it is unknown")
        return [[source] for source in sources]
    logs = [log for (log,) in logs_by_kind.values()]
    longest = max(logs, key=len, default=[])
    runs = [[source] for source in longest]
    for log in logs:
        if log is longest:
            continue
        if 0 < len(log) < len(longest):
            note = f"taken for the last of {len(longest)} runs of this folder"
            log[-1].imported.notes.append(note)
        # A log that each run overwrites belongs to the last runs.
        for source, run in zip(reversed(log), reversed(runs), strict=False):
            run.append(source)
    return [sorted(run, key=lambda source: source.kind) for run in runs]


def digest_of(identities: Sequence[str]) -> str:
    """SHA-256 of a run: its log's if it is the first run of a single log, else of `identities`."""
    if len(identities) == 1 and identities[0].endswith(":0"):
        return identities[0].removesuffix(":0")
    return hashlib.sha256("\n".join(sorted(identities)).encode()).hexdigest()


def merge(sources: Iterable[Source]) -> MergedRun:
    """Merge the Sources of one run."""
    run = MergedRun(list(sources))
    for source in run.sources:
        for name, value in source.imported.columns.items():
            _take(run, name, value, source)
    return run


def _take(run, name, value, source):
    if isinstance(value, str) and not value.replace("\n", " ").isprintable():
        run.differences.append(f"{name} is left out: {log_lines.printable(value)}")
        value = None
    if value is None:
        run.columns.setdefault(name)
    elif run.columns.get(name) is None or is_more_exact(value, run.columns[name]):
        run.columns[name], run.source_of[name] = value, source
    elif not is_rounded(run.columns[name], value):
        run.differences.append(
            f"{name} is {run.columns[name]} by {run.source_of[name].short_place} and {value} by "
            f"{source.short_place}: the former is taken"
        )


def is_rounded(exact: Any, value: Any) -> bool:
    """Whether a value equals an exact one, or rounds it to fewer digits.

    >>> is_rounded(205.53464, 205.53), is_rounded("1.10.0", "1.10"), is_rounded(64, 65)
    (True, True, False)
    """
    if exact == value:
        return True
    if isinstance(exact, str) and isinstance(value, str):
        return exact.startswith(f"{value}.")
    if not (_is_number(exact) and _is_number(value)) or int in (type(exact), type(value)):
        return False
    digits = min(_decimals(exact), _decimals(value))
    return abs(exact - value) <= 0.5000001 * 10.0**-digits


def is_more_exact(value: Any, other: Any) -> bool:
    """Whether a value has more digits than another one, which it rounds to.

    >>> is_more_exact("1.10.0", "1.10"), is_more_exact(205.53464, 205.53), is_more_exact(1.5, 2.5)
    (True, True, False)
    """
    if value == other or not is_rounded(value, other):
        return False
    return isinstance(value, str) or _decimals(value) > _decimals(other)


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _decimals(number):
    """The number of decimals in the shortest text of a number, at most 15."""
    text = repr(float(number))
    mantissa, _, exponent = text.partition("e")
    digits = len(mantissa.partition(".")[2].rstrip("0")) - int(exponent or 0)
    return min(15, max(0, digits))


ROWS_AT_ONCE = 2**14  # steps in a row group, so that a long run is never in memory twice


def complete(run: MergedRun, fields: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Add the user's columns to a run, compute missing ones, and let its importers complete it.

    `fields`: the user's parsed columns by origin, e.g. {"--fields": {"site": "far"}}; `where` names
    the run in messages. Raises Error: a user's column differs from the log's, or from that of
    another origin; a metric is wrong or comes twice.
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
    """The row of the runs table for a completed run, whose logs have this digest (SHA-256).

    `import_name`: the study, unless a log or the user gives another one.
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
        **wording.item_columns(shape, per_second, devices),
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
    run: MergedRun, run_id: str, names: Container[str] = cells.OF_IMPORT
) -> Iterator[tuple[str, pa.Table]]:
    """Yield (name, rows) of the run's tables with rows; ROWS_AT_ONCE steps at a time.

    `names`: names of the tables to yield.
    """
    if "steps" in names:
        for first in range(0, len(run.steps), ROWS_AT_ONCE):
            piece = slice(first, first + ROWS_AT_ONCE)
            yield "steps", with_run_id(_steps_table(run.steps, piece), run_id)
    schemas = {"evals": table_columns.EVALS, "metrics": METRICS, "samples": table_columns.SAMPLES}
    for name, schema in schemas.items():
        first_of_all = {"run_id": run_id} | ({"rank": 0} if name == "samples" else {})
        if name in names and (rows := getattr(run, name)):
            yield name, parquet_files.table([{**first_of_all, **row} for row in rows], schema)


def _steps_table(steps, piece):
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
    schema = parquet_files.table([], table_columns.STEPS).schema
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


def parse_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Convert fields to the types of their columns.

    >>> parse_fields({"repeat": "3", "site": "far"})
    {'repeat': 3, 'site': 'far'}

    Raises Error: a name is no column that users may give, or a value has the wrong type.
    """
    if not isinstance(fields, dict):
        raise Error(f"fields: expected a JSON object of columns, found {fields!r}")
    return {name: _value(name, value) for name, value in fields.items()}


class PathPattern:
    """A pattern of paths.

    >>> PathPattern("{_}/{model}_{devices}_gpu").fields("far/resnet50_4_gpu/metric.log")
    {'model': 'resnet50', 'devices': 4}

    Raises Error: a name is no column or occurs twice, or a brace is not closed or opened.
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip("/")
        pieces = re.split(r"\{([^{}]*)\}", self.text)
        literals, self.names = pieces[::2], [name for name in pieces[1::2] if name != "_"]
        if any(brace in literal for literal in literals for brace in "{}"):
            raise Error(f"path fields {text!r}: a brace lacks its partner")
        twice = [name for name in self.names if self.names.count(name) > 1]
        if twice:
            raise Error(f"path fields {text!r}: {twice[0]} occurs twice")
        for name in self.names:
            _column(name)
        groups = ("[^/]+?" if name == "_" else _group(name) for name in pieces[1::2])
        # Literals and groups alternate.
        parts = [re.escape(literals[0])]
        for group, literal in zip(groups, literals[1:], strict=True):
            parts += [group, re.escape(literal)]
        self._pattern = re.compile(f"{''.join(parts)}(?:/|$)")

    def fields(self, path: str) -> dict[str, Any]:
        """The fields in the beginning of a path with `/` as separator.

        An Error if the path does not match, or a value does not have its column's type.
        """
        match = self._pattern.match(path)
        if not match:
            raise Error(f"{path}: does not match the path fields {self.text!r}")
        return parse_fields(match.groupdict())


def _group(name):
    return f"(?P<{name}>{r'[0-9]+' if pa.types.is_integer(_column(name).type) else '[^/]+?'})"


def _column(name):
    known = table_columns.IMPORTABLE
    if name not in known:
        near = phrases.did_you_mean(name, known)
        raise Error(f"there is no column {name} that could be given{near}")
    return table_columns.RUNS.field(name)


def _value(name, value):
    type_ = _column(name).type
    try:
        if pa.types.is_timestamp(type_):
            date = datetime.fromisoformat(value.replace("Z", "+00:00"))
            return date if date.tzinfo else date.replace(tzinfo=timezone.utc)
        if pa.types.is_boolean(type_):
            return {"true": True, "false": False}[str(value).lower()]
        if pa.types.is_integer(type_):
            number = int(value)
            if number != float(value) or isinstance(value, bool):
                raise ValueError
            return pa.scalar(number, type_).as_py()
        if pa.types.is_floating(type_):
            return float(value)
        if not isinstance(value, str):
            raise TypeError
        return value
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, pa.ArrowInvalid):
        plain = type_.value_type if pa.types.is_dictionary(type_) else type_
        raise Error(f"{name}: expected a value of type {plain}, found {value!r}") from None
