"""GoogLeNet (Inception v1), as in trainer/keras/models/googlenet.py."""

from torch import nn

from dlbench.trainer.pytorch import convolution, initial
from dlbench.trainer.pytorch.convolution import Branches, conv_relu

TASK = "classification"
INPUT_SHAPE = (224, 224, 3)
CLASSES = 1000

# Maps of the columns of each module: 1x1; 3x3 reduced to, and out; 5x5 reduced to, and out;
# convolution. A stage begins with convolution.
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


def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    layers = [*conv_relu(input_shape[-1], 64, 7, stride=2), convolution.SamePaddedMaxPool()]
    layers += [*conv_relu(64, 64, 1), *conv_relu(64, 192, 3)]
    maps_in = 192
    for stage in STAGES:
        layers.append(convolution.SamePaddedMaxPool())
        for one, to_three, three, to_five, five, pooled in stage:
            layers.append(
                Branches(
                    conv_relu(maps_in, one, 1),
                    conv_relu(maps_in, to_three, 1) + conv_relu(to_three, three, 3),
                    conv_relu(maps_in, to_five, 1) + conv_relu(to_five, five, 5),
                    [nn.MaxPool2d(3, 1, padding=1), *conv_relu(maps_in, pooled, 1)],
                )
            )
            maps_in = one + three + five + pooled
    return nn.Sequential(*layers, convolution.GlobalAveragePool(), initial.dense(maps_in, classes))
