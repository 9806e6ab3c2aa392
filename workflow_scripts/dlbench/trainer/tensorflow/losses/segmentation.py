"""Sigmoid cross-entropy of each pixel, and the intersection and union of masks and predictions."""

import tensorflow as tf


def scaled(images: tf.Tensor) -> tf.Tensor:
    """Each image with mean 0 and deviation 1: surveys differ in the unit of their light."""
    return tf.image.per_image_standardization(tf.cast(images, tf.float32))


def loss(masks: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(_losses(masks, logits))


def sums(masks: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
    target, predicted = masks > 0, logits > 0
    return {
        "items": tf.size(masks),
        "loss": tf.reduce_sum(_losses(masks, logits)),
        "both": tf.math.count_nonzero(target & predicted),
        "either": tf.math.count_nonzero(target | predicted),
    }


def _losses(masks, logits):
    return tf.nn.sigmoid_cross_entropy_with_logits(
        tf.cast(masks, tf.float32), tf.cast(logits, tf.float32)
    )
