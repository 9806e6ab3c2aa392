"""The bottleneck ResNets for ImageNet, as in trainer/keras/models/resnet_imagenet.py."""

from typing import Any

import torch
from torch import nn

from dlbench.trainer.pytorch import convolution, initial

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
MOMENTS: dict[str, Any] = {"momentum": 0.9, "epsilon": 1e-5}


def build(input_shape: tuple[int, ...], classes: int, name: str) -> nn.Module:
    layers = [*_convolution(input_shape[-1], 64, 7, 2), convolution.SamePaddedMaxPool()]
    maps_in = 64
    for maps, count in zip(MAPS, VARIANTS[name]["BLOCKS_OF_STAGES"], strict=True):
        for block in range(count):
            stride = 2 if block == 0 and maps > MAPS[0] else 1
            layers.append(Bottleneck(maps_in, maps, stride, VARIANTS[name]["VERSION"]))
            maps_in = EXPANSION * maps
    return nn.Sequential(*layers, convolution.GlobalAveragePool(), initial.dense(maps_in, classes))


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut, which is projected where the number of maps changes."""

    def __init__(self, maps_in: int, maps: int, stride: int, version: str):
        super().__init__()
        first, second = {"v1": (stride, 1), "v1.5": (1, stride)}[version]
        maps_out = EXPANSION * maps
        self.residual = nn.Sequential(
            *_convolution(maps_in, maps, 1, first),
            *_convolution(maps, maps, 3, second),
            *_convolution(maps, maps_out, 1, rectify=False),
        )
        self.shortcut = nn.Sequential()
        if maps_in != maps_out:
            self.shortcut.extend(_convolution(maps_in, maps_out, 1, stride, rectify=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.shortcut(x) + self.residual(x), inplace=True)


def _convolution(maps_in, maps, kernel, stride=1, rectify=True):
    return convolution.conv_bn_relu(maps_in, maps, kernel, stride, "centred", rectify, **MOMENTS)
