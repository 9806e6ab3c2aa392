"""The JSON schema of the keys of a matrix block that are fields of a run.

It is made from the declarations in dlbench/run_fields/. write_reference_pages.py writes it into
config.schema.json.
"""

from typing import Any

from dlbench.run_fields.declaring import LARGEST, Declaration, value_type
from dlbench.run_fields.fields import DECLARED, FIELDS
from dlbench.study.free_axes import parameters

# The description of global_batch, which sets batch_per_device.
GLOBAL_BATCH = (
    "Items per step over all devices, for strong scaling, instead of batch_per_device: that "
    "becomes global_batch / devices."
)
PARAMETERS = (
    "Parameters of the trainer's program, as in {tensor_parallel: [1, 2]}: each has one value or a "
    "list, and its command names it, as in {tensor_parallel}. Of blocks with a trainer "
    "(docs/external.md). There, keys that take a number may have a formula, as in "
    '"{micro_batch} * {devices}".'
)
TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}
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
        return {"type": [TYPES[kind], "string"], **number, "pattern": "^max$"}
    return {"type": TYPES[kind], **number}
