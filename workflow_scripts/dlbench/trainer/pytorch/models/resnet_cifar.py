"""The ResNets for CIFAR, as in trainer/keras/models/resnet_cifar.py."""

from typing import Any

import torch
from torch import nn

from dlbench.trainer.pytorch import convolution, initial

VARIANTS = {"resnet20": {"N": 3}, "resnet56": {"N": 9}}
TASK = "classification"
INPUT_SHAPE = (32, 32, 3)
CLASSES = 10
MOMENTS: dict[str, Any] = {"momentum": 0.9, "epsilon": 1e-5}


def build(input_shape: tuple[int, ...], classes: int, name: str) -> nn.Module:
    layers = convolution.conv_bn_relu(input_shape[-1], 16, 3, **MOMENTS)
    maps_in = 16
    for maps in (16, 32, 64):
        for block in range(VARIANTS[name]["N"]):
            layers.append(Block(maps_in, maps, stride=2 if block == 0 and maps > 16 else 1))
            maps_in = maps
    return nn.Sequential(*layers, convolution.GlobalAveragePool(), initial.dense(maps_in, classes))


class Block(nn.Module):
    """Two convolutions beside a shortcut, which has zeros for the maps that its inputs lack."""

    def __init__(self, maps_in: int, maps: int, stride: int):
        super().__init__()
        self.residual = nn.Sequential(
            *convolution.conv_bn_relu(maps_in, maps, 3, stride, **MOMENTS),
            *convolution.conv_bn_relu(maps, maps, 3, rectify=False, **MOMENTS),
        )
        self.stride, self.new_maps = stride, maps - maps_in

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.residual(x)
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
            x = nn.functional.pad(x, (0, 0, 0, 0, 0, self.new_maps))
        return nn.functional.relu(x + y, inplace=True)
