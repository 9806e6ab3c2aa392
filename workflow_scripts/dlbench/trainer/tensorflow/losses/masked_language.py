"""Softmax cross-entropy of each masked token; targets elsewhere are -1."""

import tensorflow as tf


def scaled(words: tf.Tensor) -> tf.Tensor:
    return words


def loss(words: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(_losses(words, logits)) / tf.cast(_masked(words), tf.float32)


def sums(words: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"items": _masked(words), "loss": tf.reduce_sum(_losses(words, logits))}


def _masked(words):
    return tf.math.count_nonzero(words >= 0)


def _losses(words, logits):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.maximum(words, 0), tf.cast(logits, tf.float32)
    )
    return tf.where(words >= 0, losses, 0.0)
