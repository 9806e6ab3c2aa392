"""The classifier of networks before 2015: wide dense layers, half of their units dropped."""

import keras
from keras import layers


def dense(x: keras.KerasTensor, units: tuple[int, ...], classes: int) -> keras.KerasTensor:
    """Rectified dense layers of the given widths with dropout, and the logits."""
    x = layers.Flatten()(x)
    for width in units:
        x = layers.Dense(width, activation="relu", kernel_initializer="he_normal")(x)
        x = layers.Dropout(0.5)(x)
    return layers.Dense(classes, name="logits")(x)
