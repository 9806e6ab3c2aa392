"""VGG: five stages of 3x3 convolutions, each halved by pooling, and three dense layers.

- K. Simonyan and A. Zisserman (2015). Very deep convolutional networks for large-scale image
  recognition. ICLR, table 1, columns A, D and E: 11, 16 and 19 layers with weights; dropout after
  two of the dense layers.
- 132 863 336, 138 357 544 and 143 667 240 parameters, as in table 2 there (133, 138 and 144
  million).
"""

from typing import Any

import keras
from keras import layers

from dlbench.trainer.keras import convolution

VARIANTS: dict[str, Any] = {
    "vgg11": {"CONVOLUTIONS": (1, 1, 2, 2, 2)},
    "vgg16": {"CONVOLUTIONS": (2, 2, 3, 3, 3)},
    "vgg19": {"CONVOLUTIONS": (2, 2, 4, 4, 4)},
}
TASK = "classification"
INPUT_SHAPE = (224, 224, 3)
CLASSES = 1000
MAPS = (64, 128, 256, 512, 512)


def build(input_shape: tuple[int, ...], classes: int, name: str) -> keras.Model:
    inputs = x = keras.Input(input_shape)
    for maps, count in zip(MAPS, VARIANTS[name]["CONVOLUTIONS"], strict=True):
        for _ in range(count):
            x = convolution.conv_relu(x, maps, 3)
        x = layers.MaxPooling2D(2)(x)
    return keras.Model(inputs, convolution.classifier(x, (4096, 4096), classes), name=name)
