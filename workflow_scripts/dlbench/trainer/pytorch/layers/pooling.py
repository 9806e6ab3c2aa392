"""Poolings and a flattening as in Keras, which torch.nn has in another form."""

import torch
from torch import nn

from dlbench.trainer.pytorch.layers.convolution import same_padding


class SamePaddedMaxPool(nn.Module):
    """A maximum pooling of 3x3 with stride 2, padded as TensorFlow does.

    Padding is never the maximum; if a size is even, only the right or the bottom is padded.
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

    So the weights of a dense layer have the order of Keras's. With channels last in memory, nothing
    is copied.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1).flatten(1)
