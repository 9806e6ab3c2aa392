"""The bottleneck ResNets for ImageNet.

- K. He, X. Zhang, S. Ren and J. Sun (2016). Deep residual learning for image
  recognition. CVPR, table 1 and figure 5: four stages of bottleneck blocks,
  projections where the number of maps changes (option B), no conv biases.
- v1 strides in the first 1x1 convolution of a stage, as in the paper; v1.5 in its
  3x3 convolution, which costs more and gains accuracy: P. Goyal et al. (2017),
  Accurate, large minibatch SGD, arXiv:1706.02677, section 5.1.
- Padding, pooling and the moments of the normalisation as in tf_cnn_benchmarks.
"""

import keras
from keras import layers

from dlbench.trainer.keras.layers import convolution

MAPS = (64, 128, 256, 512)
EXPANSION = 4
MOMENTS = {"momentum": 0.9, "epsilon": 1e-5}


def network(
    name: str,
    blocks: tuple[int, ...],
    input_shape: tuple[int, ...],
    classes: int,
    version: str = "v1",
) -> keras.Model:
    """The network with so many blocks in each of its four stages."""
    inputs = keras.Input(input_shape)
    x = _convolution(inputs, 64, 7, 2)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for maps, count in zip(MAPS, blocks, strict=True):
        for block in range(count):
            x = _bottleneck(x, maps, 2 if block == 0 and maps > MAPS[0] else 1, version)
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
