"""A convolution with what follows it: a rectifier, or a normalisation and a rectifier.

Kernels are initialized as in K. He et al. (2015), Delving deep into rectifiers, section 2.2.
"""

from typing import Any

import torch
from torch import nn

from dlbench.trainer.pytorch.layers import initial
from dlbench.trainer.pytorch.layers.normalisation import BatchNorm2d


class SamePaddedConv2d(nn.Conv2d):
    """A convolution that strides, padded as TensorFlow does: one zero more at right and bottom."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = (
            same_padding(size, kernel, stride)
            for size, kernel, stride in zip(x.shape[2:], self.kernel_size, self.stride, strict=True)
        )
        return super().forward(nn.functional.pad(x, (*columns, *rows)))


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after `size` values so that the output has ceil(size / stride) values."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def conv(
    maps_in: int,
    maps: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: str = "same",
    bias: bool = True,
    initializer: initial.Initializer = initial.he_normal,
) -> nn.Module:
    """A convolution alone.

    Args:
        padding: "same" (unevenly where it strides), "valid", or "centred": as many zeros
            on each side, as in Caffe and PyTorch.
    """
    uneven = padding == "same" and stride > 1
    if padding == "centred" and stride > 1:
        padding_each: Any = tuple(size // 2 for size in _pair(kernel))
    else:
        padding_each = 0 if uneven or padding == "valid" else "same"
    return initial.layer(
        SamePaddedConv2d if uneven else nn.Conv2d,
        maps_in,
        maps,
        kernel,
        stride=stride,
        padding=padding_each,
        bias=bias,
        initializer=initializer,
    )


def conv_relu(*arguments: Any, **named: Any) -> list[nn.Module]:
    """A convolution with biases, and ReLU; the arguments are those of `conv`."""
    return [conv(*arguments, **named), nn.ReLU(inplace=True)]


def conv_bn_relu(
    maps_in: int,
    maps: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: str = "same",
    rectify: bool = True,
    **moments: Any,
) -> list[nn.Module]:
    """A convolution without biases, batch normalisation, and ReLU unless told otherwise.

    Args:
        padding: as in `conv`.
        moments: arguments of the normalisation.
    """
    return [
        conv(maps_in, maps, kernel, stride, padding, bias=False),
        BatchNorm2d(maps, **moments),
        *([nn.ReLU(inplace=True)] if rectify else []),
    ]


def _pair(kernel):
    return kernel if isinstance(kernel, tuple) else (kernel, kernel)
