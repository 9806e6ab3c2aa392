"""The bottleneck ResNets for ImageNet, as in tf_cnn_benchmarks.

- K. He, X. Zhang, S. Ren and J. Sun (2016). Deep residual learning for image recognition. CVPR,
  table 1 and figure 5: four stages of bottleneck blocks, projections where the number of maps
  changes (option B), no biases of convolutions. keras.applications.ResNet50 has 26 560 of these,
  which its normalisation takes away again.
- v1 strides in the first 1x1 convolution of a stage, as in the paper; v1.5 (resnet50_v1.5 of
  tf_cnn_benchmarks, and PyTorch's) in its 3x3 convolution, which costs more and gains accuracy:
  P. Goyal et al. (2017), Accurate, large minibatch SGD, arXiv:1706.02677, section 5.1.
- Padding, pooling and the moments of the normalisation as in tf_cnn_benchmarks.
- Trainable parameters, and numbers of the moving statistics of the normalisation:
  25 557 032 and 53 120 of 50 layers (torchvision's resnet50 has as many), 44 549 160 and 105 344 of
  101, 60 192 808 and 151 424 of 152.
"""

from typing import Any

import keras
from keras import layers

from dlbench.trainer.keras import convolution

VARIANTS: dict[str, Any] = {
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
MOMENTS = {"momentum": 0.9, "epsilon": 1e-5}


def build(input_shape: tuple[int, ...], classes: int, name: str) -> keras.Model:
    inputs = keras.Input(input_shape)
    x = _convolution(inputs, 64, 7, 2)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for maps, count in zip(MAPS, VARIANTS[name]["BLOCKS_OF_STAGES"], strict=True):
        for block in range(count):
            stride = 2 if block == 0 and maps > MAPS[0] else 1
            x = _bottleneck(x, maps, stride, VARIANTS[name]["VERSION"])
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes, name="logits")(x), name=name)


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
