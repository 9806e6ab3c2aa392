"""Tasks: what a model learns and how it is scored, in any framework.

The loss and the sums are computed on the devices: the file `step.py` of each framework has
LOSSES, the Losses of each task.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np


class Losses(Protocol):
    """What a framework computes for a task in compiled functions."""

    def scaled(self, inputs: Any) -> Any:
        """The model's inputs from those of a batch."""

    def loss(self, targets: Any, logits: Any) -> Any:
        """The mean loss of a batch, a float32 scalar."""

    def sums(self, targets: Any, logits: Any) -> dict[str, Any]:
        """Sums over a batch: `items`, what is averaged over; `loss`; what scores are made of."""


class Task:
    """What is common to all tasks."""

    KIND: str  # of dataset that it needs: image, mask or text
    SCORES: tuple[str, ...]  # names of its scores beside the loss
    MASKED = False  # whether items are windows of which some tokens are masked (reading/text.py)

    def logits_shape(self, input_shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
        """The shape of the model's output for one item."""
        raise NotImplementedError

    def scores(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The scores of an evaluation from the sums over all batches."""
        raise NotImplementedError

    def synthetic(
        self,
        random: "np.random.Generator",
        batch: int,
        input_shape: tuple[int, ...],
        classes: int,
    ) -> "tuple[np.ndarray, np.ndarray]":
        """Inputs and targets of a batch."""
        raise NotImplementedError


class _Classification(Task):
    """One of several classes for each image: softmax cross-entropy, top-1 and top-5."""

    KIND = "image"
    SCORES = ("top1", "top5")

    def logits_shape(self, input_shape, classes):
        return (classes,)

    def scores(self, sums):
        return {name: sums[name] / sums["items"] for name in ("loss", "top1", "top5")}

    def synthetic(self, random, batch, input_shape, classes):
        images = random.integers(0, 256, (batch, *input_shape), "uint8")
        return images, random.integers(0, classes, batch, "int32")


class _Segmentation(Task):
    """A mask for each image: sigmoid cross-entropy a pixel, intersection over union.

    IoU is over all held-out pixels together; a pixel is in the predicted mask where its logit is
    positive.
    """

    KIND = "mask"
    SCORES = ("iou",)

    def logits_shape(self, input_shape, classes):
        return (*input_shape[:-1], classes)

    def scores(self, sums):
        iou = sums["both"] / sums["either"] if sums["either"] else 1.0
        return {"loss": sums["loss"] / sums["items"], "iou": iou}

    def synthetic(self, random, batch, input_shape, classes):
        images = random.normal(size=(batch, *input_shape)).astype("float32")
        return images, random.integers(0, 2, (batch, *input_shape), "uint8")


class _Language(Task):
    """The next token at each position of an item: softmax cross-entropy of each, perplexity."""

    KIND = "text"
    SCORES = ("perplexity",)

    def logits_shape(self, input_shape, classes):
        return (*input_shape, classes)

    def scores(self, sums):
        loss = sums["loss"] / sums["items"]
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}

    def synthetic(self, random, batch, input_shape, classes):
        tokens = random.integers(0, classes, (batch, input_shape[0] + 1), "int32")
        return tokens[:, :-1], tokens[:, 1:]


class _MaskedLanguage(_Language):
    """The tokens behind the masks of an item, otherwise as for the next token."""

    MASKED = True

    def synthetic(self, random, batch, input_shape, classes):
        tokens = random.integers(0, classes - 1, (batch, *input_shape), "int32")
        from dlbench.trainer.reading import text

        return text.masked(tokens, random, classes - 1)


TASKS: Mapping[str, Task] = {
    "classification": _Classification(),
    "segmentation": _Segmentation(),
    "language": _Language(),
    "masked_language": _MaskedLanguage(),
}
