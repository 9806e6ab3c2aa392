"""AlexNet in one tower, as in tf_cnn_benchmarks, and OverFeat, which has its layers but wider.

alexnet:
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
"""

from typing import Any

import keras
from keras import layers

from dlbench.trainer.keras import convolution

VARIANTS: dict[str, Any] = {
    "alexnet": {
        "INPUT_SHAPE": (224, 224, 3),
        "ZEROS": (1, 2),  # around an image, at each axis
        "MAPS": (64, 192, 384, 384, 256),
        "SECOND_PADDING": "same",
        "POOLED": 3,
        "UNITS": (4096, 4096),
    },
    "overfeat": {
        "INPUT_SHAPE": (231, 231, 3),
        "ZEROS": (0, 0),
        "MAPS": (96, 256, 512, 1024, 1024),
        "SECOND_PADDING": "valid",
        "POOLED": 2,
        "UNITS": (3072, 4096),
    },
}
TASK = "classification"
CLASSES = 1000


def build(input_shape: tuple[int, ...], classes: int, name: str) -> keras.Model:
    variant = VARIANTS[name]
    first, second, *others = variant["MAPS"]
    inputs = x = keras.Input(input_shape)
    if any(variant["ZEROS"]):
        x = layers.ZeroPadding2D((variant["ZEROS"], variant["ZEROS"]))(x)
    x = convolution.conv_relu(x, first, 11, stride=4, padding="valid")
    x = layers.MaxPooling2D(variant["POOLED"], strides=2)(x)
    x = convolution.conv_relu(x, second, 5, padding=variant["SECOND_PADDING"])
    x = layers.MaxPooling2D(variant["POOLED"], strides=2)(x)
    for maps in others:
        x = convolution.conv_relu(x, maps, 3)
    x = layers.MaxPooling2D(variant["POOLED"], strides=2)(x)
    return keras.Model(inputs, convolution.classifier(x, variant["UNITS"], classes), name=name)
