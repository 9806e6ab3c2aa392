"""U-Net, for the overlap masks of RAMP Astro, as in trainer/keras/models/unet.py."""

import torch
from torch import nn

from dlbench.trainer.pytorch import convolution, initial

TASK = "segmentation"
INPUT_SHAPE = (128, 128, 1)
CLASSES = 1
MAPS = (16, 32, 64, 128, 256)


def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return UNet(input_shape[-1], classes)


class UNet(nn.Module):
    """Levels on the way down and up, joined by shortcuts."""

    def __init__(self, maps_in: int, classes: int):
        super().__init__()
        initializer = initial.glorot_uniform
        self.down, self.up, self.joined = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for maps in MAPS:
            self.down.append(_two_convolutions(maps_in, maps))
            maps_in = maps
        for maps in MAPS[-2::-1]:
            twice = initial.layer(
                nn.ConvTranspose2d, 2 * maps, maps, 2, stride=2, initializer=initializer
            )
            self.up.append(twice)
            self.joined.append(_two_convolutions(2 * maps, maps))
        self.logits = convolution.conv(MAPS[0], classes, 1, initializer=initializer)
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
    first = convolution.conv_relu(maps_in, maps, 3)
    return nn.Sequential(*first, *convolution.conv_relu(maps, maps, 3))
