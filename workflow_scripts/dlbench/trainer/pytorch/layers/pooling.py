"""Poolings of Keras that torch.nn has in another form, and what flattens maps as Keras does."""

import torch
from torch import nn

from dlbench.trainer.pytorch.layers.convolution import same_padding


class SamePaddedMaxPool(nn.Module):
    """The maximum of 3x3 values at every second one, padded as TensorFlow does.

    It pads with values that are never the maximum, at right and bottom alone where sizes are even.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = [same_padding(size, 3, 2)[0] for size in x.shape[2:]]
        return nn.functional.max_pool2d(x, 3, 2, before, ceil_mode=True)


class GlobalAveragePool(nn.Module):
    """From (batch, maps, height, width) to the mean of each map, (batch, maps)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


class Flatten(nn.Module):
    """From (batch, maps, height, width) to (batch, height * width * maps).

    So dense weights have the order of Keras's. Where memory has channels last, nothing is copied.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1).flatten(1)
