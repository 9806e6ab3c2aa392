"""The ResNets for CIFAR and ImageNet, as in trainer/keras/models/resnet.py."""

from typing import Any

import torch
from torch import nn

from dlbench.trainer.pytorch import layers

CONSTANTS_OF = "keras/models"
EXPANSION = 4
MOMENTS: dict[str, Any] = {"momentum": 0.9, "epsilon": 1e-5}


def build(input_shape: tuple[int, ...], classes: int, constants: dict[str, Any]) -> nn.Module:
    channels = input_shape[-1]
    if "N" in constants:
        made, maps = _for_cifar(channels, constants["N"])
    else:
        made, maps = _for_imagenet(channels, constants)
    return nn.Sequential(*made, layers.GlobalAveragePool(), layers.dense(maps, classes))


def _for_cifar(channels, n):
    made = layers.conv_bn_relu(channels, 16, 3, **MOMENTS)
    maps_in = 16
    for maps in (16, 32, 64):
        for block in range(n):
            made.append(Block(maps_in, maps, stride=2 if block == 0 and maps > 16 else 1))
            maps_in = maps
    return made, maps_in


def _for_imagenet(channels, constants):
    made = [*_convolution(channels, 64, 7, 2), layers.SamePaddedMaxPool()]
    all_maps, maps_in = constants["MAPS"], 64
    for maps, count in zip(all_maps, constants["BLOCKS_OF_STAGES"], strict=True):
        for block in range(count):
            stride = 2 if block == 0 and maps > all_maps[0] else 1
            made.append(Bottleneck(maps_in, maps, stride, constants["VERSION"]))
            maps_in = EXPANSION * maps
    return made, maps_in


class Block(nn.Module):
    """Two convolutions beside a shortcut, which has zeros for the maps that its inputs lack."""

    def __init__(self, maps_in: int, maps: int, stride: int):
        super().__init__()
        self.residual = nn.Sequential(
            *layers.conv_bn_relu(maps_in, maps, 3, stride, **MOMENTS),
            *layers.conv_bn_relu(maps, maps, 3, rectify=False, **MOMENTS),
        )
        self.stride, self.new_maps = stride, maps - maps_in

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.residual(x)
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
            x = nn.functional.pad(x, (0, 0, 0, 0, 0, self.new_maps))
        return nn.functional.relu(x + y, inplace=True)


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
    return layers.conv_bn_relu(maps_in, maps, kernel, stride, "centred", rectify, **MOMENTS)
