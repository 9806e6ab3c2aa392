"""Convolutional networks without branches: CNN-12, AlexNet, OverFeat and VGG.

cnn12, the 12-layer CNN of the PRACE CIFAR-10 benchmark:
- The talk names a simple Keras CNN of 12 layers and no more; this is the CIFAR-10 example that
  Keras shipped at that time (examples/cifar10_cnn.py), which has 12 layers if activations are
  counted with theirs: four convolutions, two poolings, three dropouts, flatten and two dense
  layers.
- 1 250 858 parameters for 32x32x3 inputs and ten classes.
alexnet, in one tower, as in tf_cnn_benchmarks:
- A. Krizhevsky (2014). One weird trick for parallelizing convolutional neural networks.
  arXiv:1404.5997: the network of A. Krizhevsky, I. Sutskever and G. Hinton (2012) without its two
  towers and its response normalisation.
- Maps of the five convolutions as in tf_cnn_benchmarks: 64, 192, 384, 384, 256. convnet-benchmarks
  and torchvision have 256 in the fourth too (61 100 840 parameters), which is about a sixth less
  work.
- Images of 224x224 get three rows and columns of zeros, where tf_cnn_benchmarks takes images of
  227x227.
- 61 838 248 parameters.
overfeat, the fast model, as in convnet-benchmarks and tf_cnn_benchmarks:
- P. Sermanet, D. Eigen, X. Zhang, M. Mathieu, R. Fergus and Y. LeCun (2014). OverFeat: integrated
  recognition, localization and detection using convolutional networks. ICLR, table 1.
- The classifier only, on its training size of 231x231; dropout as in the paper and
  tf_cnn_benchmarks, which convnet-benchmarks leaves out.
- 145 920 872 parameters, as in table 4 there (145 million).
vgg11, vgg16, vgg19: five stages of 3x3 convolutions, each halved by pooling:
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
    "cnn12": {"INPUT_SHAPE": (32, 32, 3), "CLASSES": 10},
    "alexnet": {
        "ZEROS": (1, 2),  # around an image, at each axis
        "MAPS": (64, 192, 384, 384, 256),
        "SECOND_PADDING": "same",
        "POOLED": 3,
    },
    "overfeat": {
        "INPUT_SHAPE": (231, 231, 3),
        "ZEROS": (0, 0),
        "MAPS": (96, 256, 512, 1024, 1024),
        "SECOND_PADDING": "valid",
        "POOLED": 2,
        "UNITS": (3072, 4096),
    },
    "vgg11": {"CONVOLUTIONS": (1, 1, 2, 2, 2)},
    "vgg16": {"CONVOLUTIONS": (2, 2, 3, 3, 3)},
    "vgg19": {"CONVOLUTIONS": (2, 2, 4, 4, 4)},
}
TASK = "classification"
INPUT_SHAPE = (224, 224, 3)
CLASSES = 1000
MAPS = (64, 128, 256, 512, 512)  # of VGG's stages
UNITS = (4096, 4096)  # of the dense layers before the logits


def build(input_shape: tuple[int, ...], classes: int, constants: dict[str, Any]) -> keras.Model:
    if constants["NAME"] == "cnn12":
        return _cnn12(input_shape, classes)
    inputs = x = keras.Input(input_shape)
    x = _vgg(x, constants) if "CONVOLUTIONS" in constants else _alexnet(x, constants)
    x = layers.Flatten()(x)
    for width in constants["UNITS"]:
        x = layers.Dense(width, activation="relu", kernel_initializer="he_normal")(x)
        x = layers.Dropout(0.5)(x)
    return keras.Model(inputs, layers.Dense(classes, name="logits")(x), name=constants["NAME"])


def _cnn12(input_shape, classes):
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


def _alexnet(x, constants):
    first, second, *others = constants["MAPS"]
    zeros, pooled = constants["ZEROS"], constants["POOLED"]
    if any(zeros):
        x = layers.ZeroPadding2D((zeros, zeros))(x)
    x = convolution.conv_relu(x, first, 11, stride=4, padding="valid")
    x = layers.MaxPooling2D(pooled, strides=2)(x)
    x = convolution.conv_relu(x, second, 5, padding=constants["SECOND_PADDING"])
    x = layers.MaxPooling2D(pooled, strides=2)(x)
    for maps in others:
        x = convolution.conv_relu(x, maps, 3)
    return layers.MaxPooling2D(pooled, strides=2)(x)


def _vgg(x, constants):
    for maps, count in zip(MAPS, constants["CONVOLUTIONS"], strict=True):
        for _ in range(count):
            x = convolution.conv_relu(x, maps, 3)
        x = layers.MaxPooling2D(2)(x)
    return x
