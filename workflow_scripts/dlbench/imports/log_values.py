"""Values in logs of other programs, believed only where they can be; and what is left out."""

import json
import math
from datetime import datetime, timedelta, timezone

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MOST_COUNT = 2**31 - 1  # of devices, items in a batch, steps in a window
MOST_TIME_S = 1e9  # 32 years; longer is no time of a run
MOST_NAMES = 20  # listed in one note


def real(value, low=-math.inf, high=math.inf):
    """The value as a float from `low` to `high`, or None where it is no such number; nan is none.

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


def count(value, low=1, high=MOST_COUNT):
    """The value as an int from `low` to `high`, or None where it is no such whole number.

    >>> count("64"), count(64.0), count(0), count("6.5"), count("9" * 5000), count(None)
    (64, 64, None, None, None, None)
    """
    number = real(value, low, high)
    return int(number) if number is not None and number.is_integer() else None


def loss(value):
    """The value as a float, nan and infinity too; None where it is none."""
    number = real(value)
    return math.nan if number is None and str(value).strip().lower() == "nan" else number


def date(seconds):
    """The date, in UTC, so many seconds after 1970; None where there is no such date."""
    try:
        return EPOCH + timedelta(seconds=seconds)
    except (OverflowError, ValueError, TypeError):
        return None


def from_json(text):
    """What a JSON text says, and None where it is none; so is one that is nested too deep."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def shown(text, most=80):
    """A piece of a log for a message: one line, nothing that a terminal would obey, not too long.

    >>> shown("a\\tb\\x1b"), shown("x" * 9, most=4)
    ("'a\\\\tb\\\\x1b'", "'xxxx'...")
    """
    return repr(text[:most]) + ("..." if len(text) > most else "")


def listed(names):
    """Names in their order, no more than MOST_NAMES of them.

    >>> listed(["b", "a"])
    'a, b'
    """
    names = sorted(names)
    more = [f"and {len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return ", ".join(names[:MOST_NAMES] + more)


class LeftOut:
    """What an importer leaves out of a log: a note for each reason, however often it occurs."""

    def __init__(self):
        self._found = {}

    def add(self, line, reason):
        first, _, times = self._found.get(reason, (line, line, 0))
        self._found[reason] = (first, line, times + 1)

    def notes(self):
        """
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
            for reason, (first, last, times) in self._found.items()
        ]
