"""One of several classes for each image: softmax cross-entropy, top-1 and top-5."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

KIND = "image"
SCORES = ("top1", "top5")


def scaled(images: tf.Tensor) -> tf.Tensor:
    """uint8 pixels to the range -1 .. 1."""
    return tf.cast(images, tf.float32) * (2 / 255) - 1.0


def logits_shape(input_shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
    return (classes,)


def loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(_losses(labels, logits))


def sums(labels: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
    logits = tf.cast(logits, tf.float32)
    return {
        "items": tf.shape(labels)[0],
        "loss": tf.reduce_sum(_losses(labels, logits)),
        "top1": tf.math.count_nonzero(tf.math.in_top_k(labels, logits, 1)),
        "top5": tf.math.count_nonzero(tf.math.in_top_k(labels, logits, 5)),
    }


def scores(sums: Mapping[str, float]) -> dict[str, float]:
    return {name: sums[name] / sums["items"] for name in ("loss", "top1", "top5")}


def synthetic(
    random: np.random.Generator, batch: int, input_shape: tuple[int, ...], classes: int
) -> tuple[np.ndarray, np.ndarray]:
    images = random.integers(0, 256, (batch, *input_shape), np.uint8)
    return images, random.integers(0, classes, batch, np.int32)


def _losses(labels, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))
