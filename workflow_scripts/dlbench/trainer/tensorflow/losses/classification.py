"""Softmax cross-entropy of each image, and how often its class is among the first one or five."""

import tensorflow as tf


def scaled(images: tf.Tensor) -> tf.Tensor:
    """uint8 pixels to the range -1 .. 1."""
    return tf.cast(images, tf.float32) * (2 / 255) - 1.0


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


def _losses(labels, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))
