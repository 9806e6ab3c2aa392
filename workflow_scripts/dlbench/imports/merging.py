"""Runs of one folder that several logs of one program tell of, put together.

- What one log says and another does not is taken; of numbers that differ by rounding only, the one
  with more digits. Where two say different things the first log's is kept and the notes say both.
- The steps are those of the log that has the times of most windows, or the throughput too.
"""

import math
from dataclasses import dataclass, field

from dlbench.imports.importers import Imported


@dataclass
class Source:
    """What one log has of a run: an Imported and the file it is in."""

    imported: Imported
    kind: str
    path: str  # relative to what was given
    identity: str  # SHA-256 of the file, and which of its runs, from 0

    @property
    def place(self):
        """The file with the first and last line of the run."""
        first, last = self.imported.lines
        return f"{self.path}:{first}" if first == last else f"{self.path}:{first}-{last}"

    @property
    def short_place(self):
        return self.place.rpartition("/")[2]


@dataclass
class Merged:
    """One run.

    Attributes:
        sources: of what it was put together.
        columns: of the runs table.
        said_by: the Source of each.
        differences: what two logs say differently, in words.
    """

    sources: list
    columns: dict = field(default_factory=dict)
    said_by: dict = field(default_factory=dict)
    differences: list = field(default_factory=list)

    @property
    def steps(self):
        return self._with_steps.imported.steps

    @property
    def kind(self):
        """The kind of log that the throughput is from, or the times of steps."""
        return (self.said_by.get("images_per_second") or self._with_steps).kind

    @property
    def status(self):
        return self._knowing.imported.status

    @property
    def message(self):
        return self._knowing.imported.message

    @property
    def evals(self):
        """Rows of evaluations: of logs with equally many, each row is put together."""
        found = [s.imported.evals for s in self.sources if s.imported.evals]
        most = max(found, key=len, default=[])
        rows = [dict(row) for row in most]
        for other in (rows for rows in found if len(rows) == len(most)):
            for row, more in zip(rows, other, strict=True):
                for name, value in more.items():
                    if name not in row or is_more_exact(value, row[name]):
                        row[name] = value
        return rows

    @property
    def samples(self):
        return [row for source in self.sources for row in source.imported.samples]

    @property
    def notes(self):
        notes = list(self.differences)
        for source in self.sources:
            prefix = f"{source.kind}: " if len(self.sources) > 1 else ""
            notes += [f"{prefix}{note}" for note in source.imported.notes]
        return list(dict.fromkeys(notes))

    @property
    def _with_steps(self):
        """The log with the times of most windows; of equal ones that with the exact throughput."""
        if len(self.sources) == 1:
            return self.sources[0]
        exact = self.said_by.get("images_per_second")

        def times(source):
            return sum(map(math.isfinite, source.imported.steps.step_time_s))

        return max(self.sources, key=lambda source: (times(source), source is exact))

    @property
    def _knowing(self):
        """The log that knows how the run ended: one of its training, and whole rather than cut."""

        def order(source):
            made = source.imported
            of_training = len(made.steps) > 0 or "images_per_second" in made.columns
            return not of_training, made.status != "ok"

        return min(self.sources, key=order)


def merged(sources):
    """The Merged run of some Sources, which are about one."""
    run = Merged(list(sources))
    for source in run.sources:
        for name, value in source.imported.columns.items():
            _take(run, name, value, source)
    return run


def _take(run, name, value, source):
    if value is None:
        run.columns.setdefault(name)
    elif run.columns.get(name) is None or is_more_exact(value, run.columns[name]):
        run.columns[name], run.said_by[name] = value, source
    elif not is_rounded(run.columns[name], value):
        other = run.said_by[name]
        run.differences.append(
            f"{name} is {run.columns[name]} by {other.short_place} and {value} by "
            f"{source.short_place}: "
            "the former is taken"
        )


def is_rounded(exact, value):
    """Whether a value is another one, or it with fewer digits.

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


def is_more_exact(value, other):
    """Whether a value is another one with more digits.

    >>> is_more_exact("1.10.0", "1.10"), is_more_exact(205.53464, 205.53), is_more_exact(1.5, 2.5)
    (True, True, False)
    """
    if value == other or not is_rounded(value, other):
        return False
    return isinstance(value, str) or _decimals(value) > _decimals(other)


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _decimals(number):
    """Digits behind the point of the shortest text of a number, at most 15."""
    text = repr(float(number))
    mantissa, _, exponent = text.partition("e")
    digits = len(mantissa.partition(".")[2].rstrip("0")) - int(exponent or 0)
    return min(15, max(0, digits))
