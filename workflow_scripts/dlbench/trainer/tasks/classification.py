"""One of several classes for each image: softmax cross-entropy, top-1 and top-5."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

KIND = "image"
SCORES = ("top1", "top5")


def logits_shape(input_shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
    return (classes,)


def scores(sums: Mapping[str, float]) -> dict[str, float]:
    return {name: sums[name] / sums["items"] for name in ("loss", "top1", "top5")}


def synthetic(
    random: "np.random.Generator", batch: int, input_shape: tuple[int, ...], classes: int
) -> "tuple[np.ndarray, np.ndarray]":
    images = random.integers(0, 256, (batch, *input_shape), "uint8")
    return images, random.integers(0, classes, batch, "int32")
