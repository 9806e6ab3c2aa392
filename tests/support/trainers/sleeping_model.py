"""A model whose step takes a tenth of a second and hardly any of a core: it sleeps.

For runs that must last while something else is tried, beside tests that need the cores.
"""

import time

import keras
import tensorflow as tf
from keras import layers

TASK = "classification"
INPUT_SHAPE = (8, 8, 1)
CLASSES = 10
STEP_S = 0.1


class Sleeping(layers.Layer):
    def call(self, inputs):
        slept = tf.py_function(_sleep, [inputs], inputs.dtype)
        return tf.ensure_shape(slept, inputs.shape)


def _sleep(values):
    time.sleep(STEP_S)
    return values


def build(input_shape=INPUT_SHAPE, classes=CLASSES):
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Flatten(),
            Sleeping(),
            layers.Dense(classes, name="logits"),
        ]
    )
