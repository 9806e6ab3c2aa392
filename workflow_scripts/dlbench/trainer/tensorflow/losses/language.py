"""Softmax cross-entropy of each token."""

import tensorflow as tf


def scaled(tokens: tf.Tensor) -> tf.Tensor:
    return tokens


def loss(tokens: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(_losses(tokens, logits))


def sums(tokens: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"items": tf.size(tokens), "loss": tf.reduce_sum(_losses(tokens, logits))}


def _losses(tokens, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tokens, tf.cast(logits, tf.float32))
