"""Values in logs of other programs: parsed, checked to be plausible, printed safely.

Of a clock whose readings have few digits `window_ends` gives the windows of steps between them.
"""

import csv
import json
import math
from array import array
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MAX_COUNT = 2**31 - 1  # of devices, items in a batch, steps in a window
MAX_TIME_S = 1e9  # of a run: 32 years
MAX_NAMES = 20  # listed in one note
MAX_DOUBT = 0.01  # relative error of the time of a window of steps by the last printed digit
CUT_SHORT = "no newline at its end, so it may be cut short"  # reason to leave a last line out


def real(value: Any, low: float = -math.inf, high: float = math.inf) -> float | None:
    """The value as a float from `low` to `high`; None if it is nan or no such number.

    >>> real("0.5"), real(3), real("nan"), real(True), real("5 W"), real(-1, low=0)
    (0.5, 3.0, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if low <= number <= high else None


def count(value: Any, low: int = 1, high: int = MAX_COUNT) -> int | None:
    """The value as an int from `low` to `high`; None if it is no such whole number.

    >>> count("64"), count(64.0), count(0), count("6.5"), count("9" * 5000), count(None)
    (64, 64, None, None, None, None)
    """
    number = real(value, low, high)
    return int(number) if number is not None and number.is_integer() else None


def loss(value: Any) -> float | None:
    """The value as a float, which may be nan or infinite; None if it is no number."""
    number = real(value)
    return math.nan if number is None and str(value).strip().lower() == "nan" else number


def append_rows(rows: Sequence[Sequence[bytes]], columns: Sequence[array]) -> None:
    """Parse many rows of numbers with Arrow and append them to columns; slow for a few rows.

    Args:
        rows: texts of numbers, one for each column. Real numbers may be nan and inf.
        columns: arrays of a type that Arrow and NumPy share.

    >>> steps, losses = array("q"), array("d")
    >>> append_rows([(b"1", b"6.25"), (b"2", b"nan")], (steps, losses))
    >>> list(steps), list(losses)
    ([1, 2], [6.25, nan])

    Raises:
        pa.ArrowInvalid: a text is no number of its column's type.
    """
    text = b"\n".join(map(b" ".join, rows))
    names = [str(place) for place in range(len(columns))]
    types = [pa.from_numpy_dtype(np.dtype(column.typecode)) for column in columns]
    table = pa.csv.read_csv(
        pa.BufferReader(text),
        pa.csv.ReadOptions(column_names=names, use_threads=False),
        pa.csv.ParseOptions(delimiter=" ", quote_char=False),
        pa.csv.ConvertOptions(
            column_types=dict(zip(names, types, strict=True)), null_values=[], check_utf8=False
        ),
    )
    for column, numbers in zip(columns, table.columns, strict=True):
        column.frombytes(numbers.to_numpy().tobytes())


def date(seconds: float) -> datetime | None:
    """The date in UTC of a number of seconds since 1970; None if there is no such date."""
    try:
        return EPOCH + timedelta(seconds=seconds)
    except (OverflowError, ValueError, TypeError):
        return None


def from_json(text: str) -> Any:
    """The value of a JSON text; None if it is no JSON or nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def printable(text: str, most: int = 80) -> str:
    """A part of a log for a message, as one short line without control characters.

    >>> printable("a\\tb\\x1b"), printable("x" * 9, most=4)
    ("'a\\\\tb\\\\x1b'", "'xxxx'...")
    """
    return repr(text[:most]) + ("..." if len(text) > most else "")


def csv_cells(line: str, separator: str = ",") -> list[str]:
    """The cells of a line of CSV; none if it is no CSV, e.g. with a cell of over 131072 characters.

    >>> csv_cells('1,"a,b"\\r'), csv_cells("1;2", ";")
    (['1', 'a,b'], ['1', '2'])
    """
    try:
        return next(csv.reader([line.rstrip("\r")], delimiter=separator), [])
    except csv.Error:
        return []


def list_names(names: Iterable[str]) -> str:
    """Names in alphabetical order, at most MAX_NAMES of them.

    >>> list_names(["b", "a"])
    'a, b'
    """
    names = sorted(names)
    more = [f"and {len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    return ", ".join(names[:MAX_NAMES] + more)


class LeftOut:
    """Counts the lines that an importer leaves out, by reason."""

    def __init__(self) -> None:
        self._lines_by_reason: dict[str, tuple[int, int, int]] = {}  # first, last, how many

    def add(self, line: int, reason: str) -> None:
        first, _, times = self._lines_by_reason.get(reason, (line, line, 0))
        self._lines_by_reason[reason] = (first, line, times + 1)

    def notes(self) -> list[str]:
        """One note for each reason.

        >>> left_out = LeftOut()
        >>> left_out.add(7, "no number"), left_out.add(9, "no number"), left_out.add(8, "cut")
        (None, None, None)
        >>> left_out.notes()
        ['lines 7 to 9, 2 of them, left out: no number', 'line 8 left out: cut']
        """
        return [
            f"line {first} left out: {reason}"
            if times == 1
            else f"lines {first} to {last}, {times} of them, left out: {reason}"
            for reason, (first, last, times) in self._lines_by_reason.items()
        ]


def window_ends(
    readings: Iterable[tuple[float, float]], start: tuple[float, float] = (0, 0)
) -> array:
    """The positions of the readings at which windows end.

    A window whose time is in doubt by more than MAX_DOUBT is joined with the next one, the last
    with as many before it as needed. The mean of all has the printed precision in any case.

    Args:
        readings: (time in s, its error in s by the last printed digit) each; a time of 0 is none.
        start: that of the beginning.

    >>> list(window_ends([(10, 0.1), (20, 0.1), (30, 0.4), (40, 0.1), (41, 0.1)]))
    [0, 4]
    """
    rows, times_s, doubts_s = array("q"), array("d"), array("d")
    last, last_s, last_doubt_s = None, *start
    for row, (at_s, doubt_s) in enumerate(readings):
        if not at_s:
            continue
        last = (row, at_s, doubt_s)
        took_s = at_s - last_s
        if took_s > last_doubt_s and doubt_s + last_doubt_s <= MAX_DOUBT * took_s:
            rows.append(row)
            times_s.append(at_s)
            doubts_s.append(doubt_s)
            last_s, last_doubt_s = at_s, doubt_s
    if last and (not rows or rows[-1] != last[0]):
        while rows and last[2] + doubts_s[-1] > MAX_DOUBT * (last[1] - times_s[-1]):
            del rows[-1], times_s[-1], doubts_s[-1]
        rows.append(last[0])
    return rows
