"""Check a config against its JSON schema (config.schema.json), which lists all keys and meanings.

A message about a mistake names the key, the value found, what is allowed and the nearest valid
name. The keys of a matrix block that are fields of a run come from the declarations in
dlbench/common/run_fields.py (`axes`): write_reference_pages.py writes them into config.schema.json.
"""

import functools
import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import phrases, plugins
from dlbench.common.run_fields import DECLARED, FIELDS, LARGEST, Declaration, value_type
from dlbench.study import parameters, yaml_files
from dlbench.study.runs import PLUGIN_FOLDERS
from dlbench.trainer import engine

# The description of global_batch, which sets batch_per_device.
GLOBAL_BATCH = (
    "Items per step over all devices, for strong scaling, instead of batch_per_device: that "
    "becomes global_batch / devices."
)
PARAMETERS = (
    "Parameters of the trainer's program, as in {tensor_parallel: [1, 2]}: each has one value or a "
    "list, and its command names it, as in {tensor_parallel}. Of blocks with a trainer "
    "(docs/programs.md). There, keys that take a number may have a formula, as in "
    '"{micro_batch} * {devices}".'
)
AXIS_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}
OPTION = {"type": ["string", "number", "boolean"]}
FREE_VALUE = {"type": ["string", "number"]}  # of a mapping whose names are free


def axes() -> dict[str, Any]:
    """{key: its JSON schema}, in the order of the declarations."""
    parts = {}
    for name, field in DECLARED.items():
        if field.in_config:
            parts[name] = _axis(value_type(FIELDS[name]), field)
        if name == "batch_per_device":
            parts["global_batch"] = _axis(int, field._replace(meaning=GLOBAL_BATCH, or_max=False))
    return parts | {parameters.KEY: _parameters()}


def _parameters():
    several = {"items": OPTION, "minItems": 1, "uniqueItems": True}
    return {
        "description": PARAMETERS,
        "type": "object",
        "propertyNames": {"pattern": parameters.NAME},
        "additionalProperties": {"type": [*OPTION["type"], "array"], **several},
        "minProperties": 1,
    }


def _axis(kind, field):
    """One value or a list of several."""
    schema = _value(kind, field)
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    rules = {rule: allowed for rule, allowed in schema.items() if rule != "type"}
    if field.choices:  # applies to a single value; those of a list are checked as items
        rules = {"if": {"type": "string"}, "then": rules}
    return {
        "description": field.meaning,
        "type": [*types, "array"],
        **rules,
        "items": schema,
        "minItems": 1,
        "uniqueItems": True,
    }


def _value(kind, field: Declaration):
    if field.names:
        free = {"propertyNames": {"pattern": field.names}, "additionalProperties": FREE_VALUE}
        return {"type": "object", **free}
    if field.is_mapping:
        return {"type": "object", "minProperties": 1, "additionalProperties": OPTION}
    if field.choices:
        return {"type": "string", "enum": list(field.choices)}
    if kind is str:
        return {"type": "string", "pattern": field.pattern}
    if kind is bool:
        return {"type": "boolean"}
    bounds = {"minimum": field.minimum, "exclusiveMinimum": field.above}
    bounds["maximum"] = LARGEST[kind] if field.maximum is None else field.maximum
    number = {rule: bound for rule, bound in bounds.items() if bound is not None}
    if field.or_max:
        return {"type": [AXIS_TYPES[kind], "string"], **number, "pattern": "^max$"}
    return {"type": AXIS_TYPES[kind], **number}


MAX_SHOWN = 200  # characters of a value
MAX_MISTAKES = 50  # in one message
MAX_RUNS = 100_000  # of a study, and combinations of a block
SCHEMA_FILE = Path(__file__).with_name("config.schema.json")


class ConfigError(Error):
    """The config has mistakes; the message says which and where."""


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON schema of the config (draft 2020-12)."""
    return json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))


def check(config: dict[str, Any]) -> dict[str, Any]:
    """Check the keys and types of a config, and return it.

    Floats without a fraction, as in 3.0, are returned as integers. Raises ConfigError: with every
    mistake, one a line.
    """
    if isinstance(config, dict):
        check_size(config)
        _check_products(config)
    try:
        mistakes = list(_unusable(config, (), config))
        mistakes = mistakes or _breaches(schema(), _without_formulas(config), config)
    except RecursionError as error:
        raise ConfigError("a list or mapping contains itself (by & and *)") from error
    if mistakes:
        raise ConfigError("\n".join(dict.fromkeys(mistakes)))
    return _with_whole_numbers(config)


def check_size(config: Mapping[str, Any]) -> None:
    """Check that a config is not too large once its aliases are expanded.

    yaml_files checks the files that dlbench reads; this check is for those that Snakemake reads.
    Raises ConfigError: a key unfolds to too many values.
    """
    sizes: dict[int, int] = {}

    def size(value):
        if not isinstance(value, dict | list):
            return 1
        if id(value) not in sizes:
            sizes[id(value)] = 0  # of one that contains itself, which is found later
            sizes[id(value)] = 1 + sum(
                map(size, value.values() if isinstance(value, dict) else value)
            )
        return sizes[id(value)]

    for key, value in config.items():
        try:
            count = size(value)
        except RecursionError as error:
            raise ConfigError(f"{key}: lists or mappings that are nested too deep") from error
        if count > yaml_files.MAX_VALUES:
            raise ConfigError(
                f"{key}: it unfolds to {count} values; expected at most {yaml_files.MAX_VALUES}"
            )


def _check_products(config):
    """Check by the lengths of lists that no block has too many combinations."""
    blocks = config.get("matrix")
    for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
        parts = [((), block)]
        included = block.get("include") if isinstance(block, dict) else None
        if isinstance(included, list):
            parts += [(("include", place), entry) for place, entry in enumerate(included)]
        for path, part in parts:
            if isinstance(part, dict):
                lengths = {
                    key: len(value)
                    for key, value in part.items()
                    if isinstance(value, list) and (key in FIELDS or key == "global_batch")
                }
                check_product(lengths, _where(("matrix", index, *path), config))


def check_product(lengths: Mapping[str, int], where: str) -> None:
    """Check the number of combinations of fields with these numbers of values.

    Raises ConfigError: more than MAX_RUNS.
    """
    count = math.prod(lengths.values())
    if count > MAX_RUNS:
        factors = [f"{length} values of {key}" for key, length in lengths.items() if length > 1]
        raise ConfigError(
            f"{where}: {' x '.join(factors)} are {count} combinations; expected at most {MAX_RUNS}"
        )


def check_log_patterns(entry: Any) -> None:
    """Check the keys and types of the patterns in a file, as of those under `trainers.NAME.log`.

    Raises ConfigError: with every mistake, one a line.
    """
    part = schema()["properties"]["trainers"]["additionalProperties"]["properties"]["log"]
    if mistakes := _breaches(part, entry, entry):
        raise ConfigError("\n".join(mistakes))


def _breaches(part, value, shown):
    """A line for each breach of a part of the schema; values are shown as they were given."""
    import jsonschema  # late: it takes 9 MB of memory and 0.1 s, also where no config is checked

    errors = sorted(
        itertools.islice(jsonschema.Draft202012Validator(part).iter_errors(value), MAX_MISTAKES),
        key=lambda e: (list(map(str, e.path)), e.message),
    )
    return [line for error in errors for line in _messages_of(error, shown)]


def _without_formulas(config):
    """A config with a number in place of each formula: those are checked with their block."""

    def plain(block):
        if not isinstance(block, dict):
            return block
        return {key: _number_for(key, value) for key, value in block.items()}

    if not isinstance(config, dict) or not isinstance(config.get("matrix"), list):
        return config
    blocks = [plain(block) for block in config["matrix"]]
    for block in blocks:
        if isinstance(block, dict) and isinstance(block.get("include"), list):
            block["include"] = [plain(entry) for entry in block["include"]]
    return {**config, "matrix": blocks}


def _number_for(key, value):
    """A number if a value is a formula; else the value."""
    if key not in parameters.NUMBERS:
        return value
    if isinstance(value, list) and any(map(parameters.is_formula, value)):
        numbers = itertools.count(1)  # the items of a list differ
        return [next(numbers) if parameters.is_formula(each) else each for each in value]
    return 1 if parameters.is_formula(value) else value


def check_name(folder: str, name: str, where: str) -> None:
    """Check that a folder of add-ons has a file of this name.

    Raises ConfigError: it does not; with the nearest that it has.
    """
    try:
        plugins.path(folder, name)
    except plugins.UnknownName as error:
        raise ConfigError(f"{where}: {error}") from None


def _unusable(value, path, config):
    """Yield a line for each key, text and number that is invalid whatever the schema says."""
    where = _where(path, config)
    if isinstance(value, dict):
        for key, below in value.items():
            if isinstance(key, str):
                yield from _unusable(key, path, config)
                yield from _unusable(below, (*path, key), config)
            else:
                prefix = f"{where}: " if where else ""
                yield f"{prefix}expected a text as key, found {key!r}: put it in quotes"
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _unusable(below, (*path, index), config)
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{where}: expected a finite number, found {value}"
    elif isinstance(value, str) and ("\0" in value or (not value.isascii() and _surrogates(value))):
        yield f"{where}: expected text, found {value!r}: it has a zero byte or half a character"


def _surrogates(text):
    return any("\ud800" <= character <= "\udfff" for character in text)


def _with_whole_numbers(value):
    """A copy of plain values in which a number without a fraction is an integer."""
    if isinstance(value, dict):
        return {key: _with_whole_numbers(below) for key, below in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(below) for below in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _messages_of(error, config):
    """Lines for people from one error of jsonschema."""
    rule, allowed, value = error.validator, error.validator_value, error.instance
    if rule == "anyOf" and isinstance(value, dict | list):
        # The user chose the alternative that is a mapping or a list, so its errors count.
        kinds = ("type", "enum", "const")
        errors = [e for e in error.context if e.validator not in kinds or e.instance is not value]
        if errors:
            return [line for each in errors for line in _messages_of(each, config)]
    where = _where(error.absolute_path, config)
    prefix = f"{where}: " if where else ""
    if rule in ("additionalProperties", "unevaluatedProperties"):
        keys = _keys(error.schema)
        return [
            f"{prefix}unknown key {key!r}{phrases.did_you_mean(key, keys)}; "
            f"there are: {', '.join(sorted(keys))}"
            for key in itertools.islice((key for key in value if key not in keys), MAX_MISTAKES)
        ]
    if rule == "required":
        # A misspelt key is reported once, as unknown, and not as missing too.
        unknown = [
            phrases.did_you_mean(key, allowed) for key in value if key not in _keys(error.schema)
        ]
        missing = [
            key for key in allowed if key not in value and not any(repr(key) in u for u in unknown)
        ]
        if not missing:
            return []
        return [f"{prefix}missing key{'s' if len(missing) > 1 else ''}: {', '.join(missing)}"]
    if rule == "type" and "then" in error.schema:
        rule, allowed = "enum", error.schema["then"]["enum"]
    expected = EXPECTED.get(rule, lambda *_: error.message)(allowed, error)
    shown = json.dumps(value, default=str)
    shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]} ..."
    return [f"{prefix}expected {expected}, found {shown}{_hint(error)}"]


def _of_type(allowed, error):
    kinds = allowed if isinstance(allowed, list) else [allowed]
    labels = TYPES | ({"string": "max"} if error.schema.get("pattern") == ONLY_MAX else {})
    return " or ".join(labels[kind] for kind in kinds)


def _alternatives(allowed, error):
    """What `anyOf` allows: strings, a number, a mapping or a list."""
    types = {schema.get("type"): schema for schema in allowed}
    parts = [*(schema["const"] for schema in allowed if "const" in schema)]
    parts += [", ".join(schema["enum"]) for schema in allowed if "enum" in schema]
    if types.get("string", {}).keys() <= {"type", "minLength"} and "string" in types:
        parts.append("a text")
    if number := types.get("integer"):
        parts.append(f"a whole number from {number['minimum']} to {number['maximum']}")
    if "object" in types:
        parts.append(f"a mapping with {', '.join(types['object']['required'])}")
    if "array" in types:
        parts.append("a list of mappings, one a condition")
    return ", or ".join(parts)


ONLY_MAX = "^max$"
PATTERNS = {
    ONLY_MAX: "a whole number, or max",
    "^[a-z0-9_]+$": "a name of small letters, digits and _",
    "^[A-Za-z0-9_.-]+$": "a name of letters, digits, _, . and -",
    parameters.NAME: "a name of small letters, digits and _ that begins with a letter",
    "^[A-Za-z][A-Za-z0-9_-]+$": "a long name of letters, digits, _ and - without its dashes",
    "^[A-Za-z_][A-Za-z0-9_]*$": "a name of letters, digits and _ that begins with no digit",
    "^[A-Za-z_][A-Za-z0-9_]{0,79}$": "at most 80 letters, digits and _, of which no digit is first",
    "^(?!dlbench$)[a-z0-9_]+$": "a name of small letters, digits and _, other than dlbench",
    r"^[A-Za-z0-9][A-Za-z0-9._,\[\]-]*$": "names of nodes, or a list of them as in n[1-8]",
    "^[0-9a-f]{12}$": "the key of a machine, 12 hexadecimal digits",
    "^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$": 'a date in quotes, "YYYY-MM-DD"',
    "^[^/]+$": "a name that is not empty and has no /",
    "^alone$": "the number of a rank, or alone",
    "^sha256:[0-9a-f]{64}$": "sha256: and 64 hexadecimal digits",
    "^gpu(:[A-Za-z0-9_.]+)?$": "gpu, or with a type, as in gpu:a100",
    r"^[A-Za-z0-9._-]*\{node\}[A-Za-z0-9._-]*$": "an address with {node} in it, as in {node}-ib0",
}
# What each rule of a JSON schema expects, for messages.
EXPECTED = {
    "enum": lambda allowed, error: (
        f"one of {', '.join(map(str, allowed))}{phrases.did_you_mean(error.instance, allowed)}"
    ),
    "type": _of_type,
    "minimum": lambda allowed, error: f"at least {allowed}",
    "exclusiveMinimum": lambda allowed, error: f"more than {allowed}",
    "maximum": lambda allowed, error: f"at most {allowed}",
    "exclusiveMaximum": lambda allowed, error: f"less than {allowed}",
    "minItems": lambda allowed, error: (
        "a list that is not empty" if allowed == 1 else f"a list of at least {allowed}"
    ),
    "maxItems": lambda allowed, error: f"a list of at most {allowed}",
    "minLength": lambda allowed, error: "a text that is not empty",
    "minProperties": lambda allowed, error: "at least one key",
    "uniqueItems": lambda allowed, error: "a list without repetitions",
    "pattern": lambda allowed, error: PATTERNS[allowed],
    "anyOf": _alternatives,
}
TYPES = {
    "array": "a list",
    "object": "a mapping",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def _hint(error):
    """A hint at the likely mistake in a value; "" if there is none."""
    rule, value, path = error.validator, error.instance, [*error.absolute_path]
    if rule == "maximum":
        if error.validator_value == 1:
            return f"; it is a share: {value / 100:g} is {value:g} %" if value <= 100 else ""
        return "; no machine or run has so much"
    if rule == "pattern":
        if error.validator_value == ONLY_MAX:
            return yaml_files.hint(value, "integer")
        key = next((part for part in reversed(path) if isinstance(part, str)), None)
        folder = PLUGIN_FOLDERS.get(key)
        if not folder:
            return ""
        names = {n for f in engine.names() for n in plugins.names(engine.plugin_kind(f, folder))}
        return phrases.did_you_mean(value, sorted(names))
    if rule == "type":
        if (
            path[:1] == ["images"]
            and len(path) == 2
            and path[1] in _keys(schema()["properties"]["images"]["additionalProperties"])
        ):
            return f"; an image has a name, as in images: {{train: {{{path[1]}: ...}}}}"
        allowed = error.validator_value
        return yaml_files.hint(value, allowed if isinstance(allowed, str) else allowed[0])
    return ""


def _where(path, config):
    """The place of an error, for messages: `matrix[0] (scaling).batch_per_device`."""
    place, value = "", config
    for part in path:
        value = value[part]
        if isinstance(part, int):
            place += f"[{part}]"
            place += f" ({value['name']})" if isinstance(value, dict) and "name" in value else ""
        else:
            place += f".{part}" if place else str(part)
    return place


def _keys(part):
    """All keys that a part of the schema allows, those it refers to included."""
    keys = set(part.get("properties", {}))
    if "$ref" in part:
        keys |= _keys(schema()["$defs"][part["$ref"].rsplit("/", 1)[1]])
    return keys
