"""Files of published numbers: a CSV with a line for each, as studies/README.md describes them.

Lines of one point state the same settings; a setting that the source does not state is empty.
Errors name file and line, what was expected and what was found.
"""

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dlbench import Error
from dlbench.analysis import base_flags
from dlbench.common import phrases
from dlbench.common.run_fields import DECLARED
from dlbench.tables import table_columns
from dlbench.tables.cells import Row

COUNTS = ("nodes", "devices", "batch_per_device", "epochs")
# What a point states, by the names of the runs table.
SETTINGS = (
    *("site", "device_kind", "device_model", "framework", "framework_version", "model", "dataset"),
    *("item_shape", "precision", "mode", "strategy", "launcher", "runtime", *COUNTS),
)
# Of a number. `printed` is what the source has where the value is in another unit.
ABOUT = ("metric", "value", "unit", "low", "high", "printed", "base", "quality", "source", "page")
COLUMNS = ("point", *SETTINGS, *ABOUT, "note")
OPTIONAL = "item_shape"  # a column that files of earlier versions do not have
ALLOWED = {
    "device_kind": ("cpu", "gpu"),
    "precision": DECLARED["precision"].choices,
    "mode": DECLARED["mode"].choices,
    # From the best: as the source prints it, computed from what it prints or from its logs,
    # measured in a picture.
    "quality": ("printed", "derived", "read_off"),
}
# Metrics that are columns of the runs table.
OF_RUNS = tuple(field.name for field in table_columns.RUNS if pa.types.is_floating(field.type))
# Metrics of two points, from the ratio of their throughputs and of their numbers of devices.
RELATIVE = {
    "speedup": lambda ratio, devices: ratio,
    "efficiency": lambda ratio, devices: ratio / devices,
    "slowdown": lambda ratio, devices: 1 / ratio,
    "difference_percent": lambda ratio, devices: 100 * (ratio - 1),
}


@dataclass(frozen=True, kw_only=True)
class Number:
    """One published number; `value`, or `low` and `high`, or all three. `text` as in the file."""

    line: int
    metric: str
    value: float | None
    text: str
    low: float | None
    high: float | None
    unit: str
    printed: str
    base: str
    quality: str
    source: str
    page: str
    note: str

    @property
    def decimals(self) -> int:
        """Digits after the point in the file."""
        return len(self.text.partition(".")[2])


@dataclass(frozen=True)
class Point:
    """What was measured, by the settings that are stated, and its numbers."""

    name: str
    settings: dict[str, Any]
    numbers: tuple[Number, ...]

    def value(self, metric: str) -> float | None:
        """The value of the first number with that metric; None if there is none."""
        return next((n.value for n in self.numbers if n.metric == metric), None)

    def row(self) -> Row:
        """The fields that `base_mismatch` compares; what is not stated is None."""
        return dict.fromkeys((*base_flags.BASE_KEYS, "batch_per_device")) | self.settings


def read(path: Path | str) -> dict[str, Point]:
    """The points of a file of references, by name.

    Raises Error: with the file and the line, what was expected and what was found.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{path} cannot be read as UTF-8 text: {error}") from error
    reader = csv.reader(io.StringIO(text), strict=True)
    settings: dict[str, dict[str, Any]] = {}
    numbers: dict[str, list[Number]] = {}
    try:
        columns = next(reader, [])
        _check_header(columns, path)
        for cells in reader:
            where = f"{path}, line {reader.line_num}"
            if len(cells) != len(columns):
                raise Error(
                    f"{where}: expected {len(columns)} cells, found {len(cells)}; "
                    "is a comma not inside quotes?"
                )
            row = dict(zip(columns, (cell.strip() for cell in cells), strict=True))
            row.setdefault(OPTIONAL, "")
            stated = _settings(row, where)
            stated_before = settings.setdefault(row["point"], stated)
            if stated_before != stated:
                differ = [name for name in SETTINGS if stated_before.get(name) != stated.get(name)]
                raise Error(
                    f"{where}: expected the settings of point {row['point']} as on its first "
                    f"line, found another {', '.join(differ)}"
                )
            numbers.setdefault(row["point"], []).extend(_numbers(row, reader.line_num, where))
    except csv.Error as error:
        raise Error(f"{path}, line {reader.line_num}: no CSV: {error}") from error
    points = {name: Point(name, settings[name], tuple(numbers[name])) for name in settings}
    _check_together(points, path)
    return points


def _check_header(columns, path):
    expected = tuple(name for name in COLUMNS if name != OPTIONAL or name in columns)
    missing = [name for name in expected if name not in columns]
    unknown = [name for name in columns if name not in COLUMNS]
    if missing or unknown or tuple(columns) != expected:
        problems = [
            f"{preposition} {', '.join(names)}"
            for preposition, names in (("without", missing), ("with", unknown))
            if names
        ]
        raise Error(
            f"{path}, line 1: expected the columns {','.join(expected)}; found them "
            f"{' and '.join(problems) or 'in another order'}"
        )


def _settings(row, where):
    """The settings that a line states."""
    if not row["point"]:
        raise Error(f"{where}: expected the name of a point, found none")
    settings = {}
    for name in SETTINGS:
        text = row[name]
        if not text:
            continue
        _check_allowed(name, text, where)
        settings[name] = _count(name, text, where) if name in COUNTS else text
    nodes = settings.get("nodes")
    if nodes and "devices" in settings and settings["devices"] % nodes:
        raise Error(
            f"{where}: {settings['devices']} devices cannot be spread evenly on {nodes} nodes"
        )
    return settings


def _check_allowed(name, text, where):
    if name in ALLOWED and text not in ALLOWED[name]:
        raise Error(
            f"{where}, {name}: expected one of {', '.join(ALLOWED[name])}, found {text!r}"
            f"{phrases.did_you_mean(text, ALLOWED[name])}"
        )


def _count(name, text, where):
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise Error(f"{where}, {name}: expected a whole number from 1, found {text!r}")
    return int(text)


def _numbers(row, line, where):
    """[the Number of a line]; [] of a line that has the settings of a point only."""
    if not row["metric"]:
        extra = [name for name in ABOUT if row[name] and name not in ("source", "page")]
        if extra:
            raise Error(f"{where}: expected a metric beside {', '.join(extra)}, found none")
        return []
    metrics = (*RELATIVE, *OF_RUNS)
    if row["metric"] not in metrics:
        raise Error(
            f"{where}, metric: expected {', '.join(RELATIVE)} or a number of the runs table, "
            f"found {row['metric']!r}{phrases.did_you_mean(row['metric'], metrics)}"
        )
    relative = row["metric"] in RELATIVE
    if relative != bool(row["base"]):
        base = "none" if relative else repr(row["base"])
        expected = "the point that it is relative to" if relative else "none: it is absolute"
        raise Error(f"{where}, base of {row['metric']}: expected {expected}, found {base}")
    for name in ("quality", "source"):
        if not row[name]:
            raise Error(f"{where}, {name}: expected where the number is from, found nothing")
    _check_allowed("quality", row["quality"], where)
    value, low, high = (_real(name, row[name], where) for name in ("value", "low", "high"))
    if (low is None) != (high is None) or (value is None and low is None):
        raise Error(f"{where}: expected a value, or both low and high, found neither")
    if low is not None and not low <= (low if value is None else value) <= high:
        raise Error(f"{where}: expected low <= value <= high, found {low}, {value} and {high}")
    about = {name: row[name] for name in (*ABOUT, "note")}
    about |= {"value": value, "low": low, "high": high, "text": row["value"]}
    about["printed"] = row["printed"] or row["value"] or f"{row['low']} to {row['high']}"
    return [Number(line=line, **about)]


def _real(name, text, where):
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Error(f"{where}, {name}: expected a number, found {text!r}")
    return value


def _check_together(points, path):
    """Check that bases exist and that no number occurs twice."""
    first_lines = {}
    for point in points.values():
        for number in point.numbers:
            where = f"{path}, line {number.line}"
            if number.base and number.base not in points:
                raise Error(
                    f"{where}, base: expected the name of a point of this file, found "
                    f"{number.base!r}{phrases.did_you_mean(number.base, points)}"
                )
            # Notes distinguish several numbers of a metric; a run has one of each.
            note = "" if number.metric in OF_RUNS else number.note
            key = (point.name, number.metric, number.base, note)
            if key in first_lines:
                apart = "" if number.metric in OF_RUNS else ", or give them different notes"
                raise Error(
                    f"{where}: point {point.name} has two values of {number.metric}, in lines "
                    f"{first_lines[key]} and {number.line}; delete one{apart}"
                )
            first_lines[key] = number.line
