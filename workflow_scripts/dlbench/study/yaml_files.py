"""Read YAML files that a person wrote, and report mistakes in them with file and line.

A key that occurs twice in one mapping is an error: YAML alone would silently take the last one. A
document whose nested aliases expand to too many values is refused before they are expanded. JSON,
which Snakemake accepts as a config too, is read as JSON.
"""

import contextlib
import datetime
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from dlbench import Error

NUMBER = re.compile(r"\s*[-+]?\d+(\.\d*)?\s*")
SAFE_DEPTH = 1000  # of nested lists and mappings, for libyaml
MAX_VALUES = 300_000  # that a document may have, aliases expanded
POWER = re.compile(r"([-+]?\d+(?:\.\d*)?)[eE]([-+]?\d+)")


def read(path: str | Path) -> Any:
    """The content of a YAML or JSON file as plain values; None of an empty one.

    Raises Error: it cannot be read, is no UTF-8, no YAML, or has a key twice.
    """
    try:
        content = Path(path).read_bytes()
        text = content.decode()
    except OSError as error:
        raise Error(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Error(
            f"{path}, line {line}: expected text in UTF-8, found the byte "
            f"0x{content[error.start]:x}; is it Latin-1? Save it as UTF-8"
        ) from error
    try:
        return _json(text, path)
    except Error:
        raise
    except ValueError:
        return _yaml(text, path)


def hint(value: Any, wanted: str) -> str:
    """For messages: how YAML read a value that looks like another type; "" for other values.

    `wanted`: the type that was expected, as JSON schema names it.

    >>> hint("1e-3", "number")
    '; YAML reads 1e-3 as text: write 1.0e-3'
    >>> hint(True, "string")
    '; YAML reads yes, no, on and off as true and false: put it in quotes'
    """
    if wanted in ("integer", "number") and isinstance(value, str):
        if power := POWER.fullmatch(value):
            mantissa = power[1] if "." in power[1] else f"{power[1]}.0"
            return f"; YAML reads {value} as text: write {mantissa}e{int(power[2]):+d}"
        return "; in quotes it is text" if NUMBER.fullmatch(value) else ""
    if wanted == "boolean" and str(value).lower() in ("yes", "no", "true", "false", "on", "off"):
        return "; in quotes it is text"
    if wanted == "string" and isinstance(value, bool):
        return "; YAML reads yes, no, on and off as true and false: put it in quotes"
    if wanted == "string" and isinstance(value, datetime.date):
        return "; YAML reads it as a date: put it in quotes"
    return ""


def _json(text, path):
    """The content of JSON, which has no lines that we could name."""

    def unique(pairs):
        content = dict(pairs)
        if len(content) < len(pairs):
            (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
            raise Error(f"{path}: the key {twice!r} is twice in one mapping; remove one of the two")
        return content

    try:
        return json.loads(text, object_pairs_hook=unique)
    except RecursionError as error:
        raise Error(f"{path}: lists or mappings that are nested too deep") from error


def _yaml(text, path):
    # libyaml's loader takes a tenth of the time, but crashes on deep nesting. The largest
    # indentation and the number of brackets bound the depth. PyYAML's own loader follows, which has
    # the better messages.
    indentations = (len(line) - len(line.lstrip(" \t-?:")) for line in text.splitlines())
    deepest = max(indentations, default=0) + text.count("[") + text.count("{")
    if yaml.__with_libyaml__ and deepest < SAFE_DEPTH:
        with contextlib.suppress(yaml.YAMLError, RecursionError, ValueError):
            return _content(yaml.CSafeLoader(text), path)
    try:
        return _content(yaml.SafeLoader(text), path)
    except Error:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Error(f"{path}, line {mark.line + 1}: no YAML: {_message_of(error)}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = (
            ascii(chr(error.character)) if isinstance(error.character, int) else "a character"
        )
        raise Error(f"{path}, line {line}: no YAML: {character} may not be in it") from error
    except RecursionError as error:
        raise Error(f"{path}: lists or mappings that are nested too deep") from error
    except (yaml.YAMLError, ValueError) as error:  # a date that there is not, for one
        raise Error(f"{path}: no YAML: {error}") from error


def _content(loader, path):
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check_and_count(loader, node, path, {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _message_of(error):
    message = " ".join(filter(None, (error.context, error.problem)))
    if "\\t" in message or "\t" in message:
        message += "; YAML is indented with spaces, not with tabs"
    return message


def _check_and_count(loader, node, path, sizes):
    """Check the keys of a node and return the number of its values, aliases expanded.

    `sizes`: {id of node: number of values} of the nodes that were counted before. Raises Error: a
    mapping, other than one merged by `<<`, has a key twice or too many values.
    """
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) in sizes:
        return sizes[id(node)]
    sizes[id(node)] = 0  # of one that contains itself, which is found later
    if isinstance(node, yaml.SequenceNode):
        counts = [_check_and_count(loader, item, path, sizes) for item in node.value]
    else:
        counts, lines = [], {}
        for key, below in node.value:
            count, line = _check_and_count(loader, below, path, sizes), key.start_mark.line + 1
            if count > MAX_VALUES:
                raise Error(
                    f"{path}, line {line}: {getattr(key, 'value', 'a key')} unfolds to {count} "
                    f"values (by & and *); expected at most {MAX_VALUES}"
                )
            counts += [count, _check_and_count(loader, key, path, sizes)]
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            value = loader.construct_object(key)
            if value in lines:
                raise Error(
                    f"{path}, line {line}: the key {value!r} is twice in one mapping, first in "
                    f"line {lines[value]}; remove one of the two"
                )
            lines[value] = line
    sizes[id(node)] = 1 + sum(counts)
    return sizes[id(node)]
