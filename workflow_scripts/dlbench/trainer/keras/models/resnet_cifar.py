"""The ResNets for CIFAR.

- K. He, X. Zhang, S. Ren and J. Sun (2016). Deep residual learning for image recognition. CVPR,
  section 4.2 with n = 3 and 9: 6n + 2 layers, three stages of 16, 32 and 64 maps, identity
  shortcuts padded with zeros (option A).
- Moments of the normalisation as in tf_cnn_benchmarks.
- 0.27 and 0.85 million parameters, as in table 6 there: 269 722 and 853 018 trainable ones.
"""

from typing import Any

import keras
from keras import layers, ops

from dlbench.trainer.keras import convolution

VARIANTS = {"resnet20": {"N": 3}, "resnet56": {"N": 9}}
TASK = "classification"
INPUT_SHAPE = (32, 32, 3)
CLASSES = 10
MOMENTS: dict[str, Any] = {"momentum": 0.9, "epsilon": 1e-5}


def build(input_shape: tuple[int, ...], classes: int, name: str) -> keras.Model:
    inputs = keras.Input(input_shape)
    x = convolution.conv_bn_relu(inputs, 16, 3, **MOMENTS)
    for maps in (16, 32, 64):
        for block in range(VARIANTS[name]["N"]):
            x = _block(x, maps, stride=2 if block == 0 and maps > 16 else 1)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes, name="logits")(x), name=name)


def _block(x, maps, stride):
    y = convolution.conv_bn_relu(x, maps, 3, stride, **MOMENTS)
    y = convolution.conv_bn_relu(y, maps, 3, activation=None, **MOMENTS)
    if stride > 1:
        x = ops.pad(x[:, ::stride, ::stride], ((0, 0), (0, 0), (0, 0), (0, maps - x.shape[-1])))
    return layers.Activation("relu")(layers.Add()([x, y]))
