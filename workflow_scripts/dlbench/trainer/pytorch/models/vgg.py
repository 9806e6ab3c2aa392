"""VGG, as in trainer/keras/models/vgg.py."""

from typing import Any

from torch import nn

from dlbench.trainer.pytorch import convolution

VARIANTS: dict[str, Any] = {
    "vgg11": {"CONVOLUTIONS": (1, 1, 2, 2, 2)},
    "vgg16": {"CONVOLUTIONS": (2, 2, 3, 3, 3)},
    "vgg19": {"CONVOLUTIONS": (2, 2, 4, 4, 4)},
}
TASK = "classification"
INPUT_SHAPE = (224, 224, 3)
CLASSES = 1000
MAPS = (64, 128, 256, 512, 512)


def build(input_shape: tuple[int, ...], classes: int, name: str) -> nn.Module:
    layers: list[nn.Module] = []
    maps_in = input_shape[-1]
    for maps, count in zip(MAPS, VARIANTS[name]["CONVOLUTIONS"], strict=True):
        for _ in range(count):
            layers += convolution.conv_relu(maps_in, maps, 3)
            maps_in = maps
        layers.append(nn.MaxPool2d(2))
    return convolution.with_classifier(layers, input_shape, (4096, 4096), classes)
