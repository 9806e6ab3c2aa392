"""Inception v3, as in trainer/keras/models/inception_v3.py."""

import torch
from torch import nn

from dlbench.trainer.pytorch import convolution, initial
from dlbench.trainer.pytorch.convolution import Branches

TASK = "classification"
INPUT_SHAPE = (299, 299, 3)
CLASSES = 1000


def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    layers = _column(input_shape[-1], (32, 3, 2, "valid"), (32, 3, 1, "valid"), (64, 3))
    layers.append(nn.MaxPool2d(3, 2))
    layers += _column(64, (80, 1), (192, 3, 1, "valid"))
    layers.append(nn.MaxPool2d(3, 2))
    layers += [_module_of_5x5(192, 32), _module_of_5x5(256, 64), _module_of_5x5(288, 64)]
    layers.append(_reduced_to_17(288))
    layers += [_module_of_7x7(768, maps) for maps in (128, 160, 160, 192)]
    layers.append(_reduced_to_8(768))
    layers += [_WideModule(1280), _WideModule(2048)]
    return nn.Sequential(*layers, convolution.GlobalAveragePool(), initial.dense(2048, classes))


def _module_of_5x5(maps_in, pooled):
    """Figure 5, with one 5x5 convolution kept."""
    return Branches(
        _column(maps_in, (64, 1)),
        _column(maps_in, (48, 1), (64, 5)),
        _column(maps_in, (64, 1), (96, 3), (96, 3)),
        [_averaged(), *_column(maps_in, (pooled, 1))],
    )


def _reduced_to_17(maps_in):
    """Figure 10."""
    return Branches(
        _column(maps_in, (384, 3, 2, "valid")),
        _column(maps_in, (64, 1), (96, 3), (96, 3, 2, "valid")),
        [nn.MaxPool2d(3, 2)],
    )


def _module_of_7x7(maps_in, maps):
    """Figure 6 with n = 7."""
    across, upright = (1, 7), (7, 1)
    doubled = ((maps, upright), (maps, across), (maps, upright), (192, across))
    return Branches(
        _column(maps_in, (192, 1)),
        _column(maps_in, (maps, 1), (maps, across), (192, upright)),
        _column(maps_in, (maps, 1), *doubled),
        [_averaged(), *_column(maps_in, (192, 1))],
    )


def _reduced_to_8(maps_in):
    return Branches(
        _column(maps_in, (192, 1), (320, 3, 2, "valid")),
        _column(maps_in, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2, "valid")),
        [nn.MaxPool2d(3, 2)],
    )


class _WideModule(nn.Module):
    """Figure 7."""

    def __init__(self, maps_in):
        super().__init__()
        self.three = nn.Sequential(*_column(maps_in, (384, 1)))
        self.five = nn.Sequential(*_column(maps_in, (448, 1), (384, 3)))
        self.one = nn.Sequential(*_column(maps_in, (320, 1)))
        self.of_three, self.of_five = _split(384), _split(384)
        self.averaged = nn.Sequential(_averaged(), *_column(maps_in, (192, 1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        three, five = self.three(x), self.five(x)
        columns = [self.one(x), *(part(three) for part in self.of_three)]
        columns += [*(part(five) for part in self.of_five), self.averaged(x)]
        return torch.cat(columns, 1)


def _split(maps_in):
    columns = (_column(maps_in, (384, shape)) for shape in ((1, 3), (3, 1)))
    return nn.ModuleList(nn.Sequential(*column) for column in columns)


def _column(maps_in, *convolutions):
    """Convolutions one after another, each (maps, kernel[, stride[, padding]])."""
    layers = []
    for maps, *others in convolutions:
        moments = {"scale": False, "epsilon": 1e-3, "momentum": 0.999}
        layers += convolution.conv_bn_relu(maps_in, maps, *others, **moments)
        maps_in = maps
    return layers


def _averaged():
    return nn.AvgPool2d(3, 1, padding=1, count_include_pad=False)
