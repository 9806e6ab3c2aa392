"""A source whose records are in arrays in memory, for small datasets."""

from collections.abc import Mapping
from typing import Any

from dlbench import Error


class WrongRecord(Error):
    """A record cannot be converted without changing its meaning; the message names it."""


def as_bytes(array: Any, low: float, high: float) -> Any:
    """Scale values linearly to uint8: `low` or less becomes 0, `high` or more becomes 255.

    Args:
        array: its first axis counts records.

    Raises:
        WrongRecord: a value is not finite, e.g. because a cell of the file is empty.
    """
    import numpy as np

    for index in np.flatnonzero(~np.isfinite(array).all(axis=tuple(range(1, array.ndim)))):
        values = array[index].ravel()
        position = int(np.flatnonzero(~np.isfinite(values))[0])
        raise WrongRecord(
            f"record {index} of {len(array)}, counted from 0: expected finite numbers, found "
            f"{values[position]} as number {position}, counted from 0: is a cell of the file empty?"
        )
    return np.rint(255 * (np.clip(array, low, high) - low) / (high - low)).astype(np.uint8)


class ArraySource:
    """Images of one shape, each with a label or a target of its own shape.

    Args:
        splits: maps `train` and `validation` to (images, targets), arrays whose first axis
            counts records; targets are labels of shape (n,), which must be whole numbers of any
            dtype, or masks of shape (n, ...).
    """

    def __init__(self, splits: Mapping[str, tuple[Any, Any]]) -> None:
        self._splits = splits

    def count(self, split: str) -> int:
        return len(self._splits[split][0])

    def location(self, split: str, index: int) -> str:
        return f"{split} record {index}"

    def features(self, split: str, index: int) -> dict[str, Any]:
        images, targets = self._splits[split]
        image, target = images[index], targets[index]
        height, width, channels = image.shape
        features = {
            "image/encoded": image.tobytes(),
            "image/format": "RAW",
            "image/height": height,
            "image/width": width,
            "image/channels": channels,
        }
        if target.ndim:
            return features | {"image/mask": target.tobytes()}
        return features | {"image/class/label": _label(target, self.location(split, index))}


def _label(target, where):
    if not float(target).is_integer():
        raise WrongRecord(
            f"{where}, counted from 0: expected a whole number as label, found {target}: is the "
            "label in another column, or is this a target that is no class?"
        )
    return int(target)
