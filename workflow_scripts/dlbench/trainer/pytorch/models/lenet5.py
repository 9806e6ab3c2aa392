"""LeNet-5, as in trainer/keras/models/lenet5.py."""

from torch import nn

from dlbench.trainer.pytorch import layers

TASK = "classification"
INPUT_SHAPE = (32, 32, 1)
CLASSES = 10


def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    made = [
        *_c(input_shape[-1], 6),
        nn.AvgPool2d(2),
        *_c(6, 16),
        nn.AvgPool2d(2),
        *_c(16, 120),
        layers.Flatten(),
    ]
    (inputs,) = layers.output_shape(nn.Sequential(*made), input_shape)
    return nn.Sequential(*made, layers.dense(inputs, 84), nn.Tanh(), layers.dense(84, classes))


def _c(maps_in, maps):
    initializer = layers.glorot_uniform
    return [layers.conv(maps_in, maps, 5, padding="valid", initializer=initializer), nn.Tanh()]
