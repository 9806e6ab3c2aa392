"""How long a run is, and which runs are as long."""

from collections.abc import Sequence
from typing import Any

from dlbench.tables.cells import Row, is_absent


def length(row: Row) -> tuple[Any, ...]:
    """How long a run was to be: (epochs, steps), of which one is None."""
    return tuple(None if is_absent(v := row.get(name)) else v for name in ("epochs", "steps"))


def of_length(row: Row, rows: Sequence[Row]) -> list[Row]:
    """The rows of runs as long as a run; if there is none, of those as long as the longest.

    >>> of_length({"epochs": 5}, [{"steps": 9, "run_id": "short"}, {"epochs": 5, "run_id": "same"}])
    [{'epochs': 5, 'run_id': 'same'}]
    """
    as_long = [other for other in rows if length(other) == length(row)]
    if as_long or not len(rows):
        return as_long
    measured = [other.get("steps_measured") for other in rows]
    steps: list[Any] = [0 if is_absent(count) else count for count in measured]
    longest = length(rows[steps.index(max(steps))])
    return [other for other in rows if length(other) == longest]
