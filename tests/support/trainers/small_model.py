"""A small network with all kinds of state: moving statistics, and random numbers of dropout."""

import keras
from keras import layers

TASK = "classification"
INPUT_SHAPE = (32, 32, 1)
CLASSES = 10


def build(input_shape=INPUT_SHAPE, classes=CLASSES):
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Conv2D(4, 5, strides=2, use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.Activation("relu"),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(classes, name="logits"),
        ]
    )
