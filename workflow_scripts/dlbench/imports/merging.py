"""Group the logs of one program by run, and merge the logs of each run.

- Logs of different kinds in one folder belong to the same run; if each has several runs, these are
  paired from the last run backwards. If the folder has several logs of one kind, each log is a run
  of its own.
- A column comes from the log that has it. Of two numbers that differ by rounding only, the one with
  more digits counts. Of two different values the first log's counts, and the notes have both.
- Steps come from the log with times of the most windows; if several have as many, from the log with
  the throughput.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlbench.imports import log_values
from dlbench.imports.finding import KERAS_PARTS
from dlbench.imports.importers import Imported, Steps


@dataclass
class Source:
    """A run as one log has it.

    Attributes:
        kind: name of the importer that read the log.
        path: path of the log, relative to the given folder.
        identity: `SHA-256 of the log:index of the run in the log`.
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

    Args:
        logs_by_kind: for each kind a list of logs; a log is the list of the Sources of its runs.
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
        run.differences.append(f"{name} is left out: {log_values.printable(value)}")
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
