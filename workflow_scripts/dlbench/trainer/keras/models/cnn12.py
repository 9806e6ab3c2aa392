"""The 12-layer CNN of the PRACE CIFAR-10 benchmark.

- The talk names a simple Keras CNN of 12 layers and no more; this is the
  CIFAR-10 example that Keras shipped at that time (examples/cifar10_cnn.py),
  which has 12 layers if activations are counted with theirs: four convolutions,
  two poolings, three dropouts, flatten and two dense layers.
- 1 250 858 parameters for 32x32x3 inputs and ten classes.
"""

import keras
from keras import layers

TASK = "classification"
INPUT_SHAPE = (32, 32, 3)
CLASSES = 10


def build(input_shape: tuple[int, ...], classes: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(classes, name="logits"),
        ],
        name="cnn12",
    )
