"""Named values of any name as one text: `NCCL_ALGO=Ring OMP_NUM_THREADS=4`, quoted as for a shell.

Equal values have equal texts, so the text is part of a run's id.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from dlbench import Error


def text(values: Mapping[str, Any]) -> str:
    """The text of named values, sorted by name.

    >>> text({"XLA_FLAGS": "--a --b", "OMP_NUM_THREADS": 4})
    "OMP_NUM_THREADS=4 'XLA_FLAGS=--a --b'"
    """
    return shlex.join(f"{name}={plain(values[name])}" for name in sorted(values))


def words(text: str) -> list[str]:
    """The text's parts, NAME=VALUE each, as `env` takes them. Raises Error: a part has no name."""
    try:
        found = shlex.split(text)
    except ValueError as error:
        raise Error(f"expected NAME=VALUE ..., found {text!r}: {error}") from error
    if wrong := [word for word in found if not word.partition("=")[0] or "=" not in word]:
        raise Error(f"expected NAME=VALUE, found {wrong[0]!r}")
    return found


def parse(text: str) -> dict[str, str]:
    """The named values of a text, as texts.

    >>> parse("OMP_NUM_THREADS=4 'XLA_FLAGS=--a=1 --b'")
    {'OMP_NUM_THREADS': '4', 'XLA_FLAGS': '--a=1 --b'}
    """
    return {name: value for name, _, value in (word.partition("=") for word in words(text))}


def plain(value: Any) -> str:
    """A value as a program's command line has it; booleans as in YAML.

    >>> plain(True), plain(0.5), plain("a b")
    ('true', '0.5', 'a b')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)
