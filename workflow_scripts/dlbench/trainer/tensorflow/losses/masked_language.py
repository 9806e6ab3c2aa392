"""Softmax cross-entropy of each masked token; targets elsewhere are -1."""

import tensorflow as tf


def scaled(tokens: tf.Tensor) -> tf.Tensor:
    return tokens


def loss(tokens: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(_losses(tokens, logits)) / tf.cast(_masked(tokens), tf.float32)


def sums(tokens: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"items": _masked(tokens), "loss": tf.reduce_sum(_losses(tokens, logits))}


def _masked(tokens):
    return tf.math.count_nonzero(tokens >= 0)


def _losses(tokens, logits):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.maximum(tokens, 0), tf.cast(logits, tf.float32)
    )
    return tf.where(tokens >= 0, losses, 0.0)
