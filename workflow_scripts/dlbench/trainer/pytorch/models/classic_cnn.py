"""AlexNet, OverFeat, VGG and CNN-12, as in trainer/keras/models/classic_cnn.py."""

from typing import Any

from torch import nn

from dlbench.trainer.pytorch import layers
from dlbench.trainer.pytorch.layers import conv_relu

CONSTANTS_OF = "keras/models"


def build(input_shape: tuple[int, ...], classes: int, constants: dict[str, Any]) -> nn.Module:
    if constants["NAME"] == "cnn12":
        return _cnn12(input_shape, classes)
    features = _vgg if "CONVOLUTIONS" in constants else _alexnet
    made = [*features(input_shape[-1], constants), layers.Flatten()]
    (inputs,) = layers.output_shape(nn.Sequential(*made), input_shape)
    for width in constants["UNITS"]:
        made += [layers.dense(inputs, width, layers.he_normal), nn.ReLU(inplace=True)]
        made.append(nn.Dropout(0.5))
        inputs = width
    return nn.Sequential(*made, layers.dense(inputs, classes))


def _cnn12(input_shape, classes):
    made, maps_in, initializer = [], input_shape[-1], layers.glorot_uniform
    for maps in (32, 64):
        made += conv_relu(maps_in, maps, 3, padding="same", initializer=initializer)
        made += conv_relu(maps, maps, 3, padding="valid", initializer=initializer)
        made += [nn.MaxPool2d(2), nn.Dropout(0.25)]
        maps_in = maps
    made.append(layers.Flatten())
    (inputs,) = layers.output_shape(nn.Sequential(*made), input_shape)
    made += [layers.dense(inputs, 512), nn.ReLU(inplace=True), nn.Dropout(0.5)]
    return nn.Sequential(*made, layers.dense(512, classes))


def _alexnet(maps_in, constants):
    first, second, *others = constants["MAPS"]
    zeros, pooled = constants["ZEROS"], constants["POOLED"]
    made = [nn.ZeroPad2d(2 * zeros)] if any(zeros) else []
    made += [*conv_relu(maps_in, first, 11, stride=4, padding="valid"), nn.MaxPool2d(pooled, 2)]
    made += conv_relu(first, second, 5, padding=constants["SECOND_PADDING"])
    made.append(nn.MaxPool2d(pooled, 2))
    for before, maps in zip((second, *others), others, strict=False):
        made += conv_relu(before, maps, 3)
    return [*made, nn.MaxPool2d(pooled, 2)]


def _vgg(maps_in, constants):
    made = []
    for maps, count in zip(constants["MAPS"], constants["CONVOLUTIONS"], strict=True):
        for _ in range(count):
            made += conv_relu(maps_in, maps, 3)
            maps_in = maps
        made.append(nn.MaxPool2d(2))
    return made
