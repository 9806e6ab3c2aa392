"""The CNN of PRACE's CIFAR-10 benchmark, as in trainer/keras/models/cnn12.py."""

from torch import nn

from dlbench.trainer.pytorch import convolution, initial

TASK = "classification"
INPUT_SHAPE = (32, 32, 3)
CLASSES = 10


def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    maps_in = input_shape[-1]
    for maps in (32, 64):
        layers += _rectified(maps_in, maps, "same")
        layers += _rectified(maps, maps, "valid")
        layers += [nn.MaxPool2d(2), nn.Dropout(0.25)]
        maps_in = maps
    layers.append(convolution.Flatten())
    (inputs,) = convolution.output_shape(nn.Sequential(*layers), input_shape)
    layers += [initial.dense(inputs, 512), nn.ReLU(inplace=True), nn.Dropout(0.5)]
    return nn.Sequential(*layers, initial.dense(512, classes))


def _rectified(maps_in, maps, padding):
    initializer = initial.glorot_uniform
    return convolution.conv_relu(maps_in, maps, 3, padding=padding, initializer=initializer)
