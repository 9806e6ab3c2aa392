"""Inception v3.

- C. Szegedy, V. Vanhoucke, S. Ioffe, J. Shlens and Z. Wojna (2016). Rethinking the
  Inception architecture for computer vision. CVPR, table 1 and figures 5 to 7 and
  10, in the dimensions of the authors' code, which the paper gives in part.
- Without the auxiliary classifier, dropout and label smoothing. Normalisation
  without scale, epsilon 0.001 and momentum 0.999 as in tf_cnn_benchmarks; unlike
  there, the last module averages too, as in keras.applications.
- 23 817 352 trainable parameters, as keras.applications.InceptionV3; the moving
  statistics of the normalisation are 34 432 numbers more.
"""

import keras
from keras import layers

from dlbench.trainer.keras import convolution

TASK = "classification"
INPUT_SHAPE = (299, 299, 3)
CLASSES = 1000


def build(input_shape: tuple[int, ...], classes: int) -> keras.Model:
    inputs = keras.Input(input_shape)
    x = _column(inputs, (32, 3, 2, "valid"), (32, 3, 1, "valid"), (64, 3))
    x = layers.MaxPooling2D(3, strides=2)(x)
    x = _column(x, (80, 1), (192, 3, 1, "valid"))
    x = layers.MaxPooling2D(3, strides=2)(x)
    for pooled in (32, 64, 64):
        x = _module_of_5x5(x, pooled)
    x = _reduced_to_17(x)
    for maps in (128, 160, 160, 192):
        x = _module_of_7x7(x, maps)
    x = _reduced_to_8(x)
    for _ in range(2):
        x = _wide_module(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes, name="logits")(x), name="inception_v3")


def _module_of_5x5(x, pooled):
    """Figure 5, with one 5x5 convolution kept."""
    return _joined(
        _column(x, (64, 1)),
        _column(x, (48, 1), (64, 5)),
        _column(x, (64, 1), (96, 3), (96, 3)),
        _column(_averaged(x), (pooled, 1)),
    )


def _reduced_to_17(x):
    """Figure 10."""
    return _joined(
        _column(x, (384, 3, 2, "valid")),
        _column(x, (64, 1), (96, 3), (96, 3, 2, "valid")),
        layers.MaxPooling2D(3, strides=2)(x),
    )


def _module_of_7x7(x, maps):
    """Figure 6 with n = 7."""
    return _joined(
        _column(x, (192, 1)),
        _column(x, (maps, 1), (maps, (1, 7)), (192, (7, 1))),
        _column(x, (maps, 1), (maps, (7, 1)), (maps, (1, 7)), (maps, (7, 1)), (192, (1, 7))),
        _column(_averaged(x), (192, 1)),
    )


def _reduced_to_8(x):
    return _joined(
        _column(x, (192, 1), (320, 3, 2, "valid")),
        _column(x, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2, "valid")),
        layers.MaxPooling2D(3, strides=2)(x),
    )


def _wide_module(x):
    """Figure 7."""
    three, double = _column(x, (384, 1)), _column(x, (448, 1), (384, 3))
    return _joined(
        _column(x, (320, 1)),
        *(_column(y, (384, shape)) for y in (three, double) for shape in ((1, 3), (3, 1))),
        _column(_averaged(x), (192, 1)),
    )


def _column(x, *convolutions):
    """Convolutions one after another, each (maps, kernel[, stride[, padding]])."""
    for arguments in convolutions:
        x = convolution.conv_bn_relu(x, *arguments, scale=False, epsilon=1e-3, momentum=0.999)
    return x


def _averaged(x):
    return layers.AveragePooling2D(3, strides=1, padding="same")(x)


def _joined(*columns):
    return layers.Concatenate()(list(columns))
