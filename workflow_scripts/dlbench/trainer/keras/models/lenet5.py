"""LeNet-5.

- Y. LeCun, L. Bottou, Y. Bengio and P. Haffner (1998). Gradient-based learning
  applied to document recognition. Proceedings of the IEEE 86(11).
- Layers C1 to F6 as in figure 2 there, tanh units; as in later practice, C3 sees
  all maps of S2, pooling has no weights and the output is a plain dense layer.
- 61 706 parameters for 32x32x1 inputs and ten classes.
"""

import keras
from keras import layers

TASK = "classification"
INPUT_SHAPE = (32, 32, 1)
CLASSES = 10


def build(input_shape: tuple[int, ...], classes: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Conv2D(6, 5, activation="tanh", name="c1"),
            layers.AveragePooling2D(2, name="s2"),
            layers.Conv2D(16, 5, activation="tanh", name="c3"),
            layers.AveragePooling2D(2, name="s4"),
            layers.Conv2D(120, 5, activation="tanh", name="c5"),
            layers.Flatten(),
            layers.Dense(84, activation="tanh", name="f6"),
            layers.Dense(classes, name="logits"),
        ],
        name="lenet5",
    )
