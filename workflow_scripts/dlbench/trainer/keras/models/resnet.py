"""The ResNets for CIFAR, of n blocks a stage, and the bottleneck ResNets for ImageNet.

- K. He, X. Zhang, S. Ren and J. Sun (2016). Deep residual learning for image recognition. CVPR.
- For CIFAR section 4.2 with n = 3 and 9: 6n + 2 layers, three stages of 16, 32 and 64 maps,
  identity shortcuts padded with zeros (option A). 0.27 and 0.85 million parameters, as in table 6
  there: 269 722 and 853 018 trainable ones.
- For ImageNet table 1 and figure 5: four stages of bottleneck blocks, projections where the number
  of maps changes (option B), no biases of convolutions. keras.applications.ResNet50 has 26 560 of
  these, which its normalisation takes away again.
- v1 strides in the first 1x1 convolution of a stage, as in the paper; v1.5 (resnet50_v1.5 of
  tf_cnn_benchmarks, and PyTorch's) in its 3x3 convolution, which costs more and gains accuracy:
  P. Goyal et al. (2017), Accurate, large minibatch SGD, arXiv:1706.02677, section 5.1.
- Trainable parameters, and numbers of the moving statistics of the normalisation:
  25 557 032 and 53 120 of 50 layers (torchvision's resnet50 has as many), 44 549 160 and 105 344 of
  101, 60 192 808 and 151 424 of 152.
- Padding, pooling and the moments of the normalisation as in tf_cnn_benchmarks.
"""

from typing import Any

import keras
from keras import layers, ops

from dlbench.trainer.keras import convolution

VARIANTS: dict[str, Any] = {
    "resnet20": {"INPUT_SHAPE": (32, 32, 3), "CLASSES": 10, "N": 3},
    "resnet56": {"INPUT_SHAPE": (32, 32, 3), "CLASSES": 10, "N": 9},
    "resnet50": {"BLOCKS_OF_STAGES": (3, 4, 6, 3), "VERSION": "v1"},
    "resnet50_v1_5": {"BLOCKS_OF_STAGES": (3, 4, 6, 3), "VERSION": "v1.5"},
    "resnet101": {"BLOCKS_OF_STAGES": (3, 4, 23, 3), "VERSION": "v1"},
    "resnet152": {"BLOCKS_OF_STAGES": (3, 8, 36, 3), "VERSION": "v1"},
}
TASK = "classification"
INPUT_SHAPE = (224, 224, 3)
CLASSES = 1000
MAPS = (64, 128, 256, 512)
EXPANSION = 4
MOMENTS: dict[str, Any] = {"momentum": 0.9, "epsilon": 1e-5}


def build(input_shape: tuple[int, ...], classes: int, constants: dict[str, Any]) -> keras.Model:
    inputs = keras.Input(input_shape)
    if "N" in constants:
        x = _for_cifar(inputs, constants["N"])
    else:
        x = _for_imagenet(inputs, constants["BLOCKS_OF_STAGES"], constants["VERSION"])
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes, name="logits")(x), name=constants["NAME"])


def _for_cifar(x, n):
    x = convolution.conv_bn_relu(x, 16, 3, **MOMENTS)
    for maps in (16, 32, 64):
        for block in range(n):
            x = _block(x, maps, stride=2 if block == 0 and maps > 16 else 1)
    return x


def _block(x, maps, stride):
    y = convolution.conv_bn_relu(x, maps, 3, stride, **MOMENTS)
    y = convolution.conv_bn_relu(y, maps, 3, activation=None, **MOMENTS)
    if stride > 1:
        x = ops.pad(x[:, ::stride, ::stride], ((0, 0), (0, 0), (0, 0), (0, maps - x.shape[-1])))
    return layers.Activation("relu")(layers.Add()([x, y]))


def _for_imagenet(x, blocks_of_stages, version):
    x = _convolution(x, 64, 7, 2)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for maps, count in zip(MAPS, blocks_of_stages, strict=True):
        for block in range(count):
            x = _bottleneck(x, maps, 2 if block == 0 and maps > MAPS[0] else 1, version)
    return x


def _bottleneck(x, maps, stride, version):
    first, second = {"v1": (stride, 1), "v1.5": (1, stride)}[version]
    y = _convolution(x, maps, 1, first)
    y = _convolution(y, maps, 3, second)
    y = _convolution(y, EXPANSION * maps, 1, activation=None)
    if x.shape[-1] != EXPANSION * maps:
        x = _convolution(x, EXPANSION * maps, 1, stride, activation=None)
    return layers.Activation("relu")(layers.Add()([x, y]))


def _convolution(x, maps, kernel, stride=1, activation="relu"):
    return convolution.conv_bn_relu(x, maps, kernel, stride, "centred", activation, **MOMENTS)
