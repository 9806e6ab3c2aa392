"""Labels of runs' conditions: the same words on pages, in figures and in findings."""

from collections.abc import Iterable, Sequence
from typing import Any

from dlbench.run_fields.fields import DECLARED
from dlbench.study.free_axes import parameters
from dlbench.trainer import engine

# Templates for a fact of a run with its value; fields have theirs in their declarations.
FACTS = {
    "item_shape": "items of {}",
    "site": "{}",
    "device_model": "{}",
    "timing_source": "{}",
    "framework_version": "version {}",
    "devices": "{} devices",
    "global_batch": "batch {} in all",
}
# Fields that are on or off, by the name of what they switch on.
SWITCHES = {name: field.switch for name, field in DECLARED.items() if field.switch}
LABELS = {name: field.label for name, field in DECLARED.items() if field.label}
# Templates of fields and facts, in the order of a label; all others are `name value`.
_FIRST = (
    *("model", "dataset", "batch_per_device", "strategy", "strategy_options", "launcher"),
    *("runtime", "runtime_options", "mode", "precision", "nodes", "devices_per_node"),
    *("copies_per_node", "steps", "epochs", "optimizer", *SWITCHES, "sequence_length"),
    *("item_shape", "site", "device_model", "timing_source", "framework"),
)
_KNOWN = FACTS | LABELS | {name: f"{word} {{}}" for name, word in SWITCHES.items()}
TEMPLATES = {name: _KNOWN[name] for name in dict.fromkeys((*_FIRST, *FACTS, *LABELS))}
ALWAYS = ("model", "dataset", "batch_per_device")
# Fields that a label has whenever combinations differ in them.
NAMED = (*ALWAYS, "strategy", "runtime", "precision", "nodes", "devices_per_node")
COUNTED = ("nodes", "devices_per_node", "steps", "epochs")


def short_labels(values: Sequence[dict[str, Any]]) -> list[str]:
    """The shortest labels that distinguish combinations.

    Args:
        values: the fields of each combination, the same ones for all.
    """
    varied = [name for name in values[0] if len({str(one[name]) for one in values}) > 1]
    names = [name for name in NAMED if name in ALWAYS or name in varied]
    labels = [_name(one, names) for one in values]
    for name in (*TEMPLATES, *(name for name in varied if name not in TEMPLATES)):
        longer = [_name(one, [*names, name]) for one in values]
        if name in varied and len(set(longer)) > len(set(labels)):
            names, labels = [*names, name], longer
    return labels


def _name(values, names):
    return ", ".join(
        filter(None, (field(n, values.get(n)) for n in fields_for_label(names, values)))
    )


def fields_for_label(names: Iterable[str], values: Any) -> list[str]:
    """The fields that a label needs, of those in which runs differ.

    An environment is left out beside the framework whose default environment it is.

    >>> fields_for_label(["framework", "environment"], {"framework": "jax", "environment": "jax"})
    ['framework']
    >>> fields_for_label(["framework", "environment"], {"framework": "jax", "environment": "mine"})
    ['framework', 'environment']

    Args:
        values: those of a run, with a method `get`, as rows of tables have it.
    """
    names = list(names)
    is_default = "framework" in names and values.get("environment") == engine.environment(
        values.get("framework")
    )
    return [name for name in names if name != "environment" or not is_default]


def field(name: str, value: Any) -> str:
    """A field with its value, as in `batch 32`; "" if the field has no value."""
    if value in (None, "") or (name, value) == ("launcher", "none"):
        return ""
    return setting(name, value)


def setting(name: str, value: Any) -> str:
    """A field or fact of a run with its value.

    >>> setting("steps", 1), setting("learning_rate", 0.02), setting("seed", 3)
    ('1 step', 'rate 0.02', 'seed 3')
    """
    text = f"{value:g}" if isinstance(value, float) else str(value)
    label = TEMPLATES.get(name, f"{_plain(name)} {{}}").format(text)
    return label.removesuffix("s") if name in COUNTED and text == "1" else label


def condition(field: str, value: Any) -> str:
    """A value of a field, or its text in a table: `apptainer`, `recomputing`, `no recomputing`."""
    if field in SWITCHES:
        return switch(field, str(value) == str(True))
    return setting(field, value)


def field_name(name: str) -> str:
    """The name of a field without value and unit: `batch per device`, `XLA`, `power limit`."""
    return SWITCHES.get(name, _plain(name.removesuffix("_w")))


def _plain(name):
    return name.removeprefix(parameters.PREFIX).replace("_", " ")


def switch(name: str, on: bool) -> str:
    """One of SWITCHES with its value.

    >>> switch("xla", True), switch("compile", False)
    ('XLA', 'no torch.compile')
    """
    return SWITCHES[name] if on else f"no {SWITCHES[name]}"


def device(kind: str | None) -> str:
    """The name of one device of a kind; "device" if the kind is not known.

    >>> device("cpu"), device("gpu"), device(None)
    ('CPU device', 'GPU', 'device')
    """
    return {"cpu": "CPU device", "gpu": "GPU"}.get(kind or "", "device")


def number(value: float) -> str:
    """A number with four digits, or with all digits before the decimal point.

    >>> [number(v) for v in (0.0123456, 12.3456, 13933.6)]
    ['0.01235', '12.35', '13934']
    """
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"
