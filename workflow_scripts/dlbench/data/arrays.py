"""A source whose records are all in arrays, as those of small datasets are."""

from collections.abc import Mapping
from typing import Any


class ArraySource:
    """Images of one shape, each with a label or a target of its own shape.

    Args:
        splits: maps `train` and `validation` to (images, targets), arrays whose first axis
            counts records; targets are labels of shape (n,) or masks of shape (n, ...).
    """

    def __init__(self, splits: Mapping[str, tuple[Any, Any]]) -> None:
        self._splits = splits

    def count(self, split: str) -> int:
        return len(self._splits[split][0])

    def place(self, split: str, index: int) -> str:
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
        return features | {"image/class/label": int(target)}
