"""GoogLeNet (Inception v1), as in convnet-benchmarks and tf_cnn_benchmarks.

- C. Szegedy, W. Liu, Y. Jia, P. Sermanet, S. Reed, D. Anguelov, D. Erhan,
  V. Vanhoucke and A. Rabinovich (2015). Going deeper with convolutions. CVPR,
  table 1.
- As in those benchmarks without the two auxiliary classifiers, response
  normalisation and dropout.
- 6 998 552 parameters by the dimensions in table 1. The sizes in its last column add
  up to 6.8 million and do not fit those dimensions from module 4a on.
"""

import keras
from keras import layers

from dlbench.trainer.keras.convolution import conv_relu

TASK = "classification"
INPUT_SHAPE = (224, 224, 3)
CLASSES = 1000

# Maps of the columns of each module: 1x1; 3x3 reduced to, and out; 5x5 reduced to, and out;
# pooling. A stage begins with pooling.
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


def build(input_shape: tuple[int, ...], classes: int) -> keras.Model:
    inputs = keras.Input(input_shape)
    x = _halved(conv_relu(inputs, 64, 7, stride=2))
    x = conv_relu(conv_relu(x, 64, 1), 192, 3)
    for stage in STAGES:
        x = _halved(x)
        for maps in stage:
            x = _module(x, *maps)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes, name="logits")(x), name="googlenet")


def _halved(x):
    return layers.MaxPooling2D(3, strides=2, padding="same")(x)


def _module(x, one, to_three, three, to_five, five, pooled):
    columns = [
        conv_relu(x, one, 1),
        conv_relu(conv_relu(x, to_three, 1), three, 3),
        conv_relu(conv_relu(x, to_five, 1), five, 5),
        conv_relu(layers.MaxPooling2D(3, strides=1, padding="same")(x), pooled, 1),
    ]
    return layers.Concatenate()(columns)
