"""GoogLeNet (Inception v1) and Inception v3: modules of parallel columns of convolutions.

googlenet, as in convnet-benchmarks and tf_cnn_benchmarks:
- C. Szegedy, W. Liu, Y. Jia, P. Sermanet, S. Reed, D. Anguelov, D. Erhan, V. Vanhoucke and
  A. Rabinovich (2015). Going deeper with convolutions. CVPR, table 1.
- As in those benchmarks without the two auxiliary classifiers, response normalisation and dropout.
- 6 998 552 parameters by the dimensions in table 1. The sizes in its last column add up to 6.8
  million and do not fit those dimensions from module 4a on.
inception_v3:
- C. Szegedy, V. Vanhoucke, S. Ioffe, J. Shlens and Z. Wojna (2016). Rethinking the Inception
  architecture for computer vision. CVPR, table 1 and figures 5 to 7 and 10, in the dimensions of
  the authors' code, which the paper gives in part.
- Without the auxiliary classifier, dropout and label smoothing. Normalisation without scale,
  epsilon 0.001 and momentum 0.999 as in tf_cnn_benchmarks; unlike there, the last module averages
  too, as in keras.applications.
- 23 817 352 trainable parameters, as keras.applications.InceptionV3; the moving statistics of the
  normalisation are 34 432 numbers more.
"""

from typing import Any

import keras
from keras import layers

from dlbench.trainer.keras import convolution

VARIANTS: dict[str, Any] = {
    "googlenet": {"INPUT_SHAPE": (224, 224, 3)},
    "inception_v3": {"INPUT_SHAPE": (299, 299, 3)},
}
TASK = "classification"
CLASSES = 1000
MOMENTS: dict[str, Any] = {"scale": False, "epsilon": 1e-3, "momentum": 0.999}
# Maps of the columns of each module of GoogLeNet: 1x1; 3x3 reduced to, and out; 5x5 reduced to, and
# out; pooling. A stage begins with pooling.
STAGES = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)


def build(input_shape: tuple[int, ...], classes: int, constants: dict[str, Any]) -> keras.Model:
    inputs = keras.Input(input_shape)
    x = {"googlenet": _googlenet, "inception_v3": _inception_v3}[constants["NAME"]](inputs)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes, name="logits")(x), name=constants["NAME"])


def _googlenet(x):
    x = _halved(convolution.conv_relu(x, 64, 7, stride=2))
    x = convolution.conv_relu(convolution.conv_relu(x, 64, 1), 192, 3)
    for stage in STAGES:
        x = _halved(x)
        for maps in stage:
            x = _module_of_googlenet(x, *maps)
    return x


def _halved(x):
    return layers.MaxPooling2D(3, strides=2, padding="same")(x)


def _module_of_googlenet(x, one, to_three, three, to_five, five, pooled):
    columns = [
        convolution.conv_relu(x, one, 1),
        convolution.conv_relu(convolution.conv_relu(x, to_three, 1), three, 3),
        convolution.conv_relu(convolution.conv_relu(x, to_five, 1), five, 5),
        convolution.conv_relu(layers.MaxPooling2D(3, strides=1, padding="same")(x), pooled, 1),
    ]
    return layers.Concatenate()(columns)


def _inception_v3(x):
    x = _column(x, (32, 3, 2, "valid"), (32, 3, 1, "valid"), (64, 3))
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
    return x


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
        x = convolution.conv_bn_relu(x, *arguments, **MOMENTS)
    return x


def _averaged(x):
    return layers.AveragePooling2D(3, strides=1, padding="same")(x)


def _joined(*columns):
    return layers.Concatenate()(list(columns))
