"""The next token at each position of an item: softmax cross-entropy of each, perplexity."""

import math
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

KIND = "text"
SCORES = ("perplexity",)


def reader() -> ModuleType:
    """The module that cuts text into items and masks tokens."""
    from dlbench.trainer.reading import text

    return text


def logits_shape(input_shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
    return (*input_shape, classes)


def scores(sums: Mapping[str, float]) -> dict[str, float]:
    loss = sums["loss"] / sums["items"]
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}


def synthetic(
    random: "np.random.Generator", batch: int, input_shape: tuple[int, ...], classes: int
) -> "tuple[np.ndarray, np.ndarray]":
    tokens = random.integers(0, classes, (batch, input_shape[0] + 1), "int32")
    return tokens[:, :-1], tokens[:, 1:]
