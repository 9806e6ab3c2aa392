"""The keys of a config: a JSON schema (config.schema.json) says which there are, what each means.

Here a config is checked against it, and what is wrong is said in words: the key, the value found,
what is allowed and the nearest valid name.
"""

import functools
import json
from pathlib import Path

import jsonschema

from dlbench import Error, plugins

SCHEMA_FILE = Path(__file__).with_name("config.schema.json")


class ConfigError(Error):
    """The config asks for something that cannot be; the message says what and where."""


@functools.cache
def schema():
    """The JSON schema of the config (draft 2020-12)."""
    return json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))


def check(config):
    """See that a config has the keys and kinds of values that it should have.

    Raises:
        ConfigError: with every mistake, one a line.
    """
    validator = jsonschema.Draft202012Validator(schema())
    errors = sorted(
        validator.iter_errors(config), key=lambda e: (list(map(str, e.path)), e.message)
    )
    if errors:
        raise ConfigError("\n".join(dict.fromkeys(_describe(e, config) for e in errors)))
    if unusable := list(_unusable(config, ())):
        raise ConfigError("\n".join(unusable))


def named(folder, name, where):
    """See that a folder of plugins has a name.

    Raises:
        ConfigError: it does not; with the nearest that it has.
    """
    try:
        plugins.path(folder, name)
    except plugins.UnknownName as error:
        raise ConfigError(f"{where}: {error}") from None


def _unusable(value, path):
    """Yield a line for each text that can be no argument of a program."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _unusable(key, path)
            yield from _unusable(below, (*path, key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _unusable(below, (*path, index))
    elif isinstance(value, str) and ("\0" in value or (not value.isascii() and _surrogates(value))):
        where = ".".join(map(str, path))
        yield f"{where}: expected text, found {value!r}: a zero byte or half a character is in it"


def _surrogates(text):
    return any("\ud800" <= character <= "\udfff" for character in text)


def _describe(error, config):
    """One line for people from one error of jsonschema."""
    where = _where(error.absolute_path, config)
    prefix = f"{where}: " if where else ""
    rule, allowed, found = error.validator, error.validator_value, error.instance
    if rule in ("additionalProperties", "unevaluatedProperties"):
        keys = _keys(error.schema)
        unknown = [key for key in found if key not in keys]
        return "\n".join(
            f"{prefix}unknown key {key!r}{plugins.nearest(key, keys)}; "
            f"there are: {', '.join(sorted(keys))}"
            for key in unknown
        )
    if rule == "required":
        missing = [key for key in allowed if key not in found]
        return f"{prefix}missing key{'s' if len(missing) > 1 else ''}: {', '.join(missing)}"
    expected = {
        "enum": lambda: f"one of {', '.join(map(str, allowed))}{plugins.nearest(found, allowed)}",
        "type": lambda: " or ".join(
            {"array": "a list", "object": "a mapping"}.get(t, f"one {t}")
            for t in (allowed if isinstance(allowed, list) else [allowed])
        ),
        "minimum": lambda: f"at least {allowed}",
        "exclusiveMinimum": lambda: f"more than {allowed}",
        "minItems": lambda: "a list that is not empty",
        "minLength": lambda: "a text that is not empty",
        "minProperties": lambda: "at least one key",
        "uniqueItems": lambda: "a list without repetitions",
        "pattern": lambda: f"a name that matches {allowed}",
        "anyOf": lambda: (
            "a number of at least 1, or target_interval (above 0, below 1), min and max (2 to 31)"
            if "repeats" in where
            else "auto, or a number of at least 1"
        ),
    }.get(rule, lambda: error.message)()
    return f"{prefix}expected {expected}, found {json.dumps(found, default=str)}"


def _where(path, config):
    """The place of an error in words: `matrix[0] (scaling).batch_per_device`."""
    words, value = "", config
    for part in path:
        value = value[part]
        if isinstance(part, int):
            words += f"[{part}]"
            words += f" ({value['name']})" if isinstance(value, dict) and "name" in value else ""
        else:
            words += f".{part}" if words else str(part)
    return words


def _keys(part):
    """All keys that a part of the schema allows, those it refers to included."""
    keys = set(part.get("properties", {}))
    if "$ref" in part:
        keys |= _keys(schema()["$defs"][part["$ref"].rsplit("/", 1)[1]])
    return keys
