"""The tokens behind the masks of an item: softmax cross-entropy of each, perplexity."""

from typing import TYPE_CHECKING

from dlbench.trainer.tasks import language

if TYPE_CHECKING:
    import numpy as np

KIND = "text"
SCORES = ("perplexity",)
MASKED = True  # items are windows of which some tokens are masked (reading/text.py)
# As for models of the next token.
reader = language.reader
logits_shape = language.logits_shape
scores = language.scores


def synthetic(
    random: "np.random.Generator", batch: int, input_shape: tuple[int, ...], classes: int
) -> "tuple[np.ndarray, np.ndarray]":
    tokens = random.integers(0, classes - 1, (batch, *input_shape), "int32")
    return reader().masked(tokens, random, classes - 1)
