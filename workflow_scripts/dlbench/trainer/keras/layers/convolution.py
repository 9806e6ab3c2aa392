"""A convolution with what follows it: a rectifier, or a normalisation and a rectifier.

Kernels are initialized as in K. He et al. (2015), Delving deep into rectifiers, section 2.2.
"""

from typing import Any

import keras
from keras import layers

from dlbench.trainer.keras.layers.normalisation import BatchNormalization


def conv_relu(
    x: keras.KerasTensor,
    maps: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: str = "same",
) -> keras.KerasTensor:
    """A convolution with biases, and ReLU."""
    return layers.Conv2D(
        maps,
        kernel,
        strides=stride,
        padding=padding,
        activation="relu",
        kernel_initializer="he_normal",
    )(x)


def conv_bn_relu(
    x: keras.KerasTensor,
    maps: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: str = "same",
    activation: str | None = "relu",
    **moments: Any,
) -> keras.KerasTensor:
    """A convolution without biases, batch normalisation, and ReLU unless `activation` is None.

    Args:
        padding: "same" (TensorFlow pads unevenly where it strides), "valid", or
            "centred": as many zeros on each side, as in Caffe and PyTorch.
        moments: arguments of the normalisation.
    """
    if padding == "centred":
        if stride > 1 and isinstance(kernel, int) and kernel > 1:
            x = layers.ZeroPadding2D(kernel // 2)(x)
            padding = "valid"
        else:
            padding = "same"
    x = layers.Conv2D(
        maps,
        kernel,
        strides=stride,
        padding=padding,
        use_bias=False,
        kernel_initializer="he_normal",
    )(x)
    x = BatchNormalization(**moments)(x)
    return layers.Activation(activation)(x) if activation else x
