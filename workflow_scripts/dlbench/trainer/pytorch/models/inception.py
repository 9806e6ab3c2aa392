"""GoogLeNet and Inception v3, as in trainer/keras/models/inception.py."""

from typing import Any

import torch
from torch import nn

from dlbench.trainer.pytorch import layers
from dlbench.trainer.pytorch.layers import Branches, conv_relu

CONSTANTS_OF = "keras/models"
MOMENTS: dict[str, Any] = {"scale": False, "epsilon": 1e-3, "momentum": 0.999}


def build(input_shape: tuple[int, ...], classes: int, constants: dict[str, Any]) -> nn.Module:
    if constants["NAME"] == "googlenet":
        made, maps = _googlenet(input_shape[-1], constants["STAGES"])
    else:
        made, maps = _inception_v3(input_shape[-1]), 2048
    return nn.Sequential(*made, layers.GlobalAveragePool(), layers.dense(maps, classes))


def _googlenet(maps_in, stages):
    made = [*conv_relu(maps_in, 64, 7, stride=2), layers.SamePaddedMaxPool()]
    made += [*conv_relu(64, 64, 1), *conv_relu(64, 192, 3)]
    maps_in = 192
    for stage in stages:
        made.append(layers.SamePaddedMaxPool())
        for one, to_three, three, to_five, five, pooled in stage:
            made.append(
                Branches(
                    conv_relu(maps_in, one, 1),
                    conv_relu(maps_in, to_three, 1) + conv_relu(to_three, three, 3),
                    conv_relu(maps_in, to_five, 1) + conv_relu(to_five, five, 5),
                    [nn.MaxPool2d(3, 1, padding=1), *conv_relu(maps_in, pooled, 1)],
                )
            )
            maps_in = one + three + five + pooled
    return made, maps_in


def _inception_v3(maps_in):
    made = _column(maps_in, (32, 3, 2, "valid"), (32, 3, 1, "valid"), (64, 3))
    made.append(nn.MaxPool2d(3, 2))
    made += _column(64, (80, 1), (192, 3, 1, "valid"))
    made.append(nn.MaxPool2d(3, 2))
    made += [_module_of_5x5(192, 32), _module_of_5x5(256, 64), _module_of_5x5(288, 64)]
    made.append(_reduced_to_17(288))
    made += [_module_of_7x7(768, maps) for maps in (128, 160, 160, 192)]
    made.append(_reduced_to_8(768))
    return [*made, _WideModule(1280), _WideModule(2048)]


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
    made = []
    for maps, *others in convolutions:
        made += layers.conv_bn_relu(maps_in, maps, *others, **MOMENTS)
        maps_in = maps
    return made


def _averaged():
    return nn.AvgPool2d(3, 1, padding=1, count_include_pad=False)
