"""The VGG family.

- K. Simonyan and A. Zisserman (2015). Very deep convolutional networks for
  large-scale image recognition. ICLR, table 1: five stages of 3x3 convolutions,
  each halved by pooling, and three dense layers, dropout after two of them.
"""

import keras
from keras import layers

from dlbench.trainer.keras.layers import classifier, convolution

MAPS = (64, 128, 256, 512, 512)


def network(
    name: str, convolutions: tuple[int, ...], input_shape: tuple[int, ...], classes: int
) -> keras.Model:
    """The network with so many convolutions in each of its five stages."""
    inputs = x = keras.Input(input_shape)
    for maps, count in zip(MAPS, convolutions, strict=True):
        for _ in range(count):
            x = convolution.conv_relu(x, maps, 3)
        x = layers.MaxPooling2D(2)(x)
    return keras.Model(inputs, classifier.dense(x, (4096, 4096), classes), name=name)
