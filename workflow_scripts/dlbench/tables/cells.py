"""Rows of tables and the values in their cells."""

from typing import Any

Row = dict[str, Any]  # by column; a column that it lacks is absent


def is_absent(value: Any) -> bool:
    """Whether a cell is empty: None, or nan as pandas has it."""
    return value is None or value != value
