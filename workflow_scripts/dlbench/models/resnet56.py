"""ResNet-56 for CIFAR.

- K. He, X. Zhang, S. Ren and J. Sun (2016). Deep residual learning for image
  recognition. CVPR, section 4.2: 6n + 2 layers with n = 9, three stages of 16,
  32 and 64 maps, identity shortcuts padded with zeros (option A).
- 0.85 million parameters, as in table 6 there.
"""

import keras
from keras import layers

TASK = "classification"
INPUT_SHAPE = (32, 32, 3)
CLASSES = 10
BLOCKS_PER_STAGE = 9


def build(input_shape=INPUT_SHAPE, classes=CLASSES):
    inputs = keras.Input(input_shape)
    x = layers.Activation("relu")(_normalised_convolution(inputs, 16, 1))
    for maps in (16, 32, 64):
        for block in range(BLOCKS_PER_STAGE):
            x = _block(x, maps, stride=2 if block == 0 and maps > 16 else 1)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes, name="logits")(x), name="resnet56")


def _block(x, maps, stride):
    shortcut = x
    if stride > 1:
        missing = maps - x.shape[-1]
        shortcut = layers.AveragePooling2D(1, strides=stride)(shortcut)
        # Zeros for the new maps: permuting makes the channels an axis that can be padded.
        shortcut = layers.Permute((3, 1, 2))(shortcut)
        shortcut = layers.ZeroPadding2D(((0, missing), (0, 0)), data_format="channels_last")(
            shortcut
        )
        shortcut = layers.Permute((2, 3, 1))(shortcut)
    y = layers.Activation("relu")(_normalised_convolution(x, maps, stride))
    y = _normalised_convolution(y, maps, 1)
    return layers.Activation("relu")(layers.Add()([shortcut, y]))


def _normalised_convolution(x, maps, stride):
    x = layers.Conv2D(
        maps, 3, strides=stride, padding="same", use_bias=False, kernel_initializer="he_normal"
    )(x)
    return layers.BatchNormalization()(x)
