"""What the items of runs are called, and the unit of their rates: images, or tokens of a text.

The shape of one input decides: an image has rows and columns, a sequence is one row of tokens.
Rates of sequences are given in tokens per second.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

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


def name(shape: Shape) -> str | None:
    """What an item of a shape is called; None if that is not known.

    >>> name([224, 224, 3]), name("128"), name(None)
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
    return _sizes(shape)[0] if name(shape) == SEQUENCE else None


def unit(shapes: Iterable[Shape], one_factor: bool = False) -> Unit:
    """The unit of the rates of some runs: the one that all their items, of known shape, share.

    Args:
        one_factor: all rates are converted by one factor, so sequences of several lengths cannot be
            given in tokens.

    >>> unit(["128", "128"]).plural, unit(["32x32x1", None]).plural, unit(["128", None]).plural
    ('tokens', 'images', 'items')
    >>> unit([None]).plural
    'items'
    >>> unit(["128", "64"]).plural, unit(["128", "64"], one_factor=True).plural
    ('tokens', 'sequences')
    """
    shapes = list(shapes)
    lengths = {tokens(shape) for shape in shapes}
    known = lengths - {None}
    if not known:
        return IMAGES if any(map(name, shapes)) else ITEMS
    if None in lengths:
        return ITEMS
    if one_factor and len(known) > 1:
        return Unit("sequences", 1, SEQUENCE)
    return Unit("tokens", max(length for length in lengths if length), SEQUENCE)


def columns(
    shape: Shape, images_per_second: float | None, devices: int | None = None
) -> dict[str, str | float]:
    """Columns of a table: the name of an item, and rates in tokens and per device, if known.

    >>> columns("20", 3.0), columns("32x32x1", 3.0), columns(None, 3.0)
    ({'item': 'sequence', 'tokens_per_second': 60.0}, {'item': 'image'}, {})
    >>> columns("32x32x1", 3.0, devices=2)
    {'item': 'image', 'images_per_second_per_device': 1.5}
    """
    known: dict[str, str | float] = {}
    if called := name(shape):
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
