"""U-Net, for the overlap masks of RAMP Astro, as in trainer/keras/models/unet.py."""

from typing import Any

import torch
from torch import nn

from dlbench.trainer.pytorch import layers

CONSTANTS_OF = "keras/models"


def build(input_shape: tuple[int, ...], classes: int, constants: dict[str, Any]) -> nn.Module:
    return UNet(input_shape[-1], constants["MAPS"], classes)


class UNet(nn.Module):
    """Levels on the way down and up, joined by shortcuts."""

    def __init__(self, maps_in: int, all_maps: tuple[int, ...], classes: int):
        super().__init__()
        initializer = layers.glorot_uniform
        self.down, self.up, self.joined = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for maps in all_maps:
            self.down.append(_two_convolutions(maps_in, maps))
            maps_in = maps
        for maps in all_maps[-2::-1]:
            twice = layers.layer(
                nn.ConvTranspose2d, 2 * maps, maps, 2, stride=2, initializer=initializer
            )
            self.up.append(twice)
            self.joined.append(_two_convolutions(2 * maps, maps))
        self.logits = layers.conv(all_maps[0], classes, 1, initializer=initializer)
        self.halved = nn.MaxPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        *levels, bottom = self.down
        shortcuts = []
        for level in levels:
            x = level(x)
            shortcuts.append(x)
            x = self.halved(x)
        x = bottom(x)
        for twice, level, shortcut in zip(self.up, self.joined, shortcuts[::-1], strict=True):
            x = level(torch.cat([shortcut, twice(x)], 1))
        return self.logits(x)


def _two_convolutions(maps_in, maps):
    first = layers.conv_relu(maps_in, maps, 3)
    return nn.Sequential(*first, *layers.conv_relu(maps, maps, 3))
