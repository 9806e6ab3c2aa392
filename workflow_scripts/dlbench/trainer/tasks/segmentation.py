"""A mask for each image: sigmoid cross-entropy a pixel, intersection over union.

- IoU is over all held-out pixels together; a pixel is in the predicted mask
  where its logit is positive.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

KIND = "mask"
SCORES = ("iou",)


def logits_shape(input_shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
    return (*input_shape[:-1], classes)


def scores(sums: Mapping[str, float]) -> dict[str, float]:
    iou = sums["both"] / sums["either"] if sums["either"] else 1.0
    return {"loss": sums["loss"] / sums["items"], "iou": iou}


def synthetic(
    random: "np.random.Generator", batch: int, input_shape: tuple[int, ...], classes: int
) -> "tuple[np.ndarray, np.ndarray]":
    images = random.normal(size=(batch, *input_shape)).astype("float32")
    return images, random.integers(0, 2, (batch, *input_shape), "uint8")
