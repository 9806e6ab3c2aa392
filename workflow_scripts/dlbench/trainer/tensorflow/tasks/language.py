"""The next word at each place of a window: softmax cross-entropy a word, perplexity."""

import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

KIND = "text"
SCORES = ("perplexity",)


def scaled(words: tf.Tensor) -> tf.Tensor:
    return words


def logits_shape(input_shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
    return (*input_shape, classes)


def loss(words: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(_losses(words, logits))


def sums(words: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"items": tf.size(words), "loss": tf.reduce_sum(_losses(words, logits))}


def scores(sums: Mapping[str, float]) -> dict[str, float]:
    loss = sums["loss"] / sums["items"]
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}


def synthetic(
    random: np.random.Generator, batch: int, input_shape: tuple[int, ...], classes: int
) -> tuple[np.ndarray, np.ndarray]:
    words = random.integers(0, classes, (batch, input_shape[0] + 1), np.int32)
    return words[:, :-1], words[:, 1:]


def _losses(words, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(words, tf.cast(logits, tf.float32))
