"""Softmax cross-entropy of each word."""

import tensorflow as tf


def scaled(words: tf.Tensor) -> tf.Tensor:
    return words


def loss(words: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(_losses(words, logits))


def sums(words: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"items": tf.size(words), "loss": tf.reduce_sum(_losses(words, logits))}


def _losses(words, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(words, tf.cast(logits, tf.float32))
