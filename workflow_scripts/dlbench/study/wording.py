"""Labels of runs' conditions, and what their items are called: the same words everywhere.

The shape of one input decides: an image has rows and columns, a sequence is one row of tokens.
Rates of sequences are given in tokens per second.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from dlbench.common import run_fields
from dlbench.common.run_fields import DECLARED
from dlbench.study import parameters
from dlbench.trainer import engine

IMAGE, SEQUENCE = "image", "sequence"
Shape = Sequence[int] | str | None  # as 224x224x3 in tables; None if unknown


class Unit(NamedTuple):
    """What a rate counts.

    Attributes:
        plural: its name.
        per_item: how many of them an item has; the most, if sequences differ in length.
        item: what an item is called.
    """

    plural: str
    per_item: int
    item: str


IMAGES, ITEMS = Unit("images", 1, IMAGE), Unit("items", 1, "item")


def item_name(shape: Shape) -> str | None:
    """What an item of a shape is called; None if that is not known.

    >>> item_name([224, 224, 3]), item_name("128"), item_name(None)
    ('image', 'sequence', None)
    """
    sizes = _sizes(shape)
    if not sizes:
        return None
    return SEQUENCE if len(sizes) == 1 else IMAGE


def tokens(shape: Shape) -> int | None:
    """How many tokens an item has; None if it is no text.

    >>> tokens([128]), tokens("32x32x1")
    (128, None)
    """
    return _sizes(shape)[0] if item_name(shape) == SEQUENCE else None


def rate_unit(shapes: Iterable[Shape], one_factor: bool = False) -> Unit:
    """The unit of the rates of some runs: the one that all their items, of known shape, share.

    `one_factor`: all rates are converted by one factor, so sequences of several lengths cannot be
    given in tokens.

    >>> [rate_unit(each).plural for each in (["128", "128"], ["32x32x1", None], ["128", None])]
    ['tokens', 'images', 'items']
    >>> rate_unit([None]).plural
    'items'
    >>> rate_unit(["128", "64"]).plural, rate_unit(["128", "64"], one_factor=True).plural
    ('tokens', 'sequences')
    """
    shapes = list(shapes)
    lengths = {tokens(shape) for shape in shapes}
    known = lengths - {None}
    if not known:
        return IMAGES if any(map(item_name, shapes)) else ITEMS
    if None in lengths:
        return ITEMS
    if one_factor and len(known) > 1:
        return Unit("sequences", 1, SEQUENCE)
    return Unit("tokens", max(length for length in lengths if length), SEQUENCE)


def item_columns(
    shape: Shape, images_per_second: float | None, devices: int | None = None
) -> dict[str, str | float]:
    """Columns of a table: the name of an item, and rates in tokens and per device, if known.

    >>> item_columns("20", 3.0), item_columns("32x32x1", 3.0), item_columns(None, 3.0)
    ({'item': 'sequence', 'tokens_per_second': 60.0}, {'item': 'image'}, {})
    >>> item_columns("32x32x1", 3.0, devices=2)
    {'item': 'image', 'images_per_second_per_device': 1.5}
    """
    known: dict[str, str | float] = {}
    if called := item_name(shape):
        known["item"] = called
    rates = {"images_per_second": images_per_second or 0.0}
    rates["tokens_per_second"] = (tokens(shape) or 0) * rates["images_per_second"]
    if images_per_second and tokens(shape):
        known["tokens_per_second"] = rates["tokens_per_second"]
    if devices:
        known |= {f"{rate}_per_device": value / devices for rate, value in rates.items() if value}
    return known


def _sizes(shape: Shape) -> list[int]:
    if not shape or not isinstance(shape, (str, list, tuple)):
        return []  # tables have nan where nothing is
    sizes = [str(size) for size in (shape.split("x") if isinstance(shape, str) else shape)]
    # What logs of others call a shape may be any text.
    return [int(size) for size in sizes] if all(map(str.isdecimal, sizes)) else []


# Facts of a run: their place in a label and the template with their value; fields have theirs in
# their declarations.
FACTS = {
    "item_shape": (20, "items of {}"),
    "site": (21, "{}"),
    "device_model": (22, "{}"),
    "timing_source": (23, "{}"),
    "framework_version": (31, "version {}"),
    "devices": (61, "{} devices"),
    "global_batch": (71, "batch {} in all"),
}
# Fields that are on or off, by the name of what they switch on.
SWITCHES = {name: field.switch for name, field in DECLARED.items() if field.switch}
LABELS = {name: field.label for name, field in DECLARED.items() if field.label}
ALWAYS = run_fields.tagged(run_fields.ALWAYS)


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Fields and facts in the order of a label.

    >>> in_order(["nodes", "site", "model", "learning_rate", "devices"])
    ('model', 'site', 'nodes', 'devices', 'learning_rate')
    """
    declared = list(DECLARED)

    def place(name):
        if name in FACTS:
            return FACTS[name][0], 0
        return run_fields.rank(name), declared.index(name)

    return tuple(sorted(names, key=place))


# Templates of fields and facts, in the order of a short label; all others are `name value`.
_KNOWN = {name: template for name, (_, template) in FACTS.items()} | LABELS
_KNOWN |= {name: f"{word} {{}}" for name, word in SWITCHES.items()}
TEMPLATES = {name: _KNOWN[name] for name in dict.fromkeys((*ALWAYS, *in_order(_KNOWN)))}
# Fields that a label has whenever combinations differ in them.
NAMED = (*ALWAYS, *in_order(run_fields.tagged(run_fields.VARIED)))


def short_labels(values: Sequence[dict[str, Any]]) -> list[str]:
    """The shortest labels that distinguish combinations.

    `values`: the fields of each combination, the same ones for all.
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

    An environment is left out beside the framework whose default environment it is. `values`: those
    of a run, with a method `get`, as rows of tables have it.

    >>> fields_for_label(["framework", "environment"], {"framework": "jax", "environment": "jax"})
    ['framework']
    >>> fields_for_label(["framework", "environment"], {"framework": "jax", "environment": "mine"})
    ['framework', 'environment']
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
    return condition(name, value)


def setting(name: str, value: Any) -> str:
    """A field or fact of a run with its value.

    >>> setting("steps", 1), setting("learning_rate", 0.02), setting("seed", 3)
    ('1 step', 'rate 0.02', 'seed 3')
    """
    text = f"{value:g}" if isinstance(value, float) else str(value)
    label = TEMPLATES.get(name, f"{_plain(name)} {{}}").format(text)
    return label.removesuffix("s") if label.startswith("1 ") else label


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
