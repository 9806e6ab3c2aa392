"""Columns that the user gives for imported runs, because the logs lack them.

The user gives values, or a pattern of paths such as
`{runtime}_{_}/{dataset}_{model}_{devices}_gpu/{repeat}`, which must match the beginning of a path.
A column's name in braces takes its value from the path; `_` is ignored. A name matches as little as
possible, within one part of the path; an integer column matches digits only.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from dlbench import Error
from dlbench.common import phrases
from dlbench.tables import table_columns

NAMES = table_columns.IMPORTABLE


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
    if name not in NAMES:
        raise Error(
            f"there is no column {name} that could be given{phrases.did_you_mean(name, NAMES)}"
        )
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
        return _text(value)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, pa.ArrowInvalid):
        plain = type_.value_type if pa.types.is_dictionary(type_) else type_
        raise Error(f"{name}: expected a value of type {plain}, found {value!r}") from None


def _text(value):
    if not isinstance(value, str):
        raise TypeError
    return value
