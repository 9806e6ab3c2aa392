"""AlexNet in one tower and OverFeat, as in trainer/keras/models/alexnet.py."""

from typing import Any

from torch import nn

from dlbench.trainer.pytorch import convolution

VARIANTS: dict[str, Any] = {
    "alexnet": {
        "INPUT_SHAPE": (224, 224, 3),
        "ZEROS": (1, 2),
        "MAPS": (64, 192, 384, 384, 256),
        "SECOND_PADDING": "same",
        "POOLED": 3,
        "UNITS": (4096, 4096),
    },
    "overfeat": {
        "INPUT_SHAPE": (231, 231, 3),
        "ZEROS": (0, 0),
        "MAPS": (96, 256, 512, 1024, 1024),
        "SECOND_PADDING": "valid",
        "POOLED": 2,
        "UNITS": (3072, 4096),
    },
}
TASK = "classification"
CLASSES = 1000


def build(input_shape: tuple[int, ...], classes: int, name: str) -> nn.Module:
    conv_relu, variant = convolution.conv_relu, VARIANTS[name]
    first, second, *others = variant["MAPS"]
    layers: list[nn.Module] = [nn.ZeroPad2d(2 * variant["ZEROS"])] if any(variant["ZEROS"]) else []
    layers += conv_relu(input_shape[-1], first, 11, stride=4, padding="valid")
    layers.append(nn.MaxPool2d(variant["POOLED"], 2))
    layers += conv_relu(first, second, 5, padding=variant["SECOND_PADDING"])
    layers.append(nn.MaxPool2d(variant["POOLED"], 2))
    for maps_in, maps in zip((second, *others), others, strict=False):
        layers += conv_relu(maps_in, maps, 3)
    layers.append(nn.MaxPool2d(variant["POOLED"], 2))
    return convolution.with_classifier(layers, input_shape, variant["UNITS"], classes)
