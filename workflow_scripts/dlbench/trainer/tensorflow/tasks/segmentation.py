"""A mask for each image: sigmoid cross-entropy a pixel, intersection over union.

- IoU is over all held-out pixels together; a pixel is in the predicted mask
  where its logit is positive.
"""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

KIND = "mask"
SCORES = ("iou",)


def scaled(images: tf.Tensor) -> tf.Tensor:
    """Each image with mean 0 and deviation 1: surveys differ in the unit of their light."""
    return tf.image.per_image_standardization(tf.cast(images, tf.float32))


def logits_shape(input_shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
    return (*input_shape[:-1], classes)


def loss(masks: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(_losses(masks, logits))


def sums(masks: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
    wanted, predicted = masks > 0, logits > 0
    return {
        "items": tf.size(masks),
        "loss": tf.reduce_sum(_losses(masks, logits)),
        "both": tf.math.count_nonzero(wanted & predicted),
        "either": tf.math.count_nonzero(wanted | predicted),
    }


def scores(sums: Mapping[str, float]) -> dict[str, float]:
    iou = sums["both"] / sums["either"] if sums["either"] else 1.0
    return {"loss": sums["loss"] / sums["items"], "iou": iou}


def synthetic(
    random: np.random.Generator, batch: int, input_shape: tuple[int, ...], classes: int
) -> tuple[np.ndarray, np.ndarray]:
    images = random.normal(size=(batch, *input_shape)).astype(np.float32)
    return images, random.integers(0, 2, (batch, *input_shape), np.uint8)


def _losses(masks, logits):
    return tf.nn.sigmoid_cross_entropy_with_logits(
        tf.cast(masks, tf.float32), tf.cast(logits, tf.float32)
    )
