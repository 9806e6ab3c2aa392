"""The next word at each place of a window: softmax cross-entropy a word, perplexity."""

import math

import numpy as np
import tensorflow as tf

KIND = "text"
SCORES = ("perplexity",)


def scaled(words):
    return words


def logits_shape(input_shape, classes):
    return (*input_shape, classes)


def loss(words, logits):
    return tf.reduce_mean(_losses(words, logits))


def sums(words, logits):
    return {"items": tf.size(words), "loss": tf.reduce_sum(_losses(words, logits))}


def scores(sums):
    loss = sums["loss"] / sums["items"]
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}


def synthetic(random, batch, input_shape, classes):
    words = random.integers(0, classes, (batch, input_shape[0] + 1), np.int32)
    return words[:, :-1], words[:, 1:]


def _losses(words, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(words, tf.cast(logits, tf.float32))
