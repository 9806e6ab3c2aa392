"""Layers of convolutional networks, as Keras has them: see trainer/keras/convolution.py.

The operation of batch normalisation is PyTorch's own. Its moving variance has Bessel's correction,
as in algorithm 2 of the publication; Keras's has not. Training does not use it, and in an
evaluation the difference is small: n against n - 1 for n values of a map in a batch.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from dlbench.trainer.pytorch import initial


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

    `padding` is "same" (unevenly where it strides), "valid", or "centred": as many zeros on each
    side, as in Caffe and PyTorch.
    """
    uneven = padding == "same" and stride > 1
    if padding == "centred" and stride > 1:
        padding_each: Any = tuple(
            size // 2 for size in (kernel if isinstance(kernel, tuple) else (kernel, kernel))
        )
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
    """A convolution without biases, batch normalisation with `moments`, and ReLU if `rectify`."""
    return [
        conv(maps_in, maps, kernel, stride, padding, bias=False),
        BatchNorm2d(maps, **moments),
        *([nn.ReLU(inplace=True)] if rectify else []),
    ]


class BatchNorm2d(nn.BatchNorm2d):
    """torch.nn.BatchNorm2d with the arguments of Keras's layer.

    Under DistributedDataParallel each device normalises its own shard of the batch.

    Args:
        epsilon: added to the variance.
        momentum: the weight of the old moving statistics; torch.nn's momentum is 1 - this.
        scale: whether the outputs have a learned factor.
    """

    def __init__(self, maps: int, epsilon: float, momentum: float, scale: bool = True):
        super().__init__(maps, eps=epsilon, momentum=1 - momentum)
        self.register_buffer("num_batches_tracked", None)  # averages of other kinds need it
        if not scale:
            self.register_parameter("weight", None)


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


class Branches(nn.Module):
    """Concatenates the output channels of all branches."""

    def __init__(self, *columns: Iterable[nn.Module]):
        super().__init__()
        self.columns = nn.ModuleList(nn.Sequential(*column) for column in columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([column(x) for column in self.columns], 1)


def with_classifier(
    features: list[nn.Module],
    input_shape: tuple[int, ...],
    units: tuple[int, ...],
    classes: int,
) -> nn.Module:
    """Layers, then rectified dense layers of the given widths with dropout, and the logits."""
    layers = [*features, Flatten()]
    (inputs,) = output_shape(nn.Sequential(*layers), input_shape)
    for width in units:
        layers += [initial.dense(inputs, width, initial.he_normal), nn.ReLU(inplace=True)]
        layers.append(nn.Dropout(0.5))
        inputs = width
    return nn.Sequential(*layers, initial.dense(inputs, classes))


def output_shape(layers: nn.Module, input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The output shape of layers for one item of (height, width, channels), by no computation.

    Raises ValueError: an item is too small for the layers.
    """
    height, width, channels = input_shape
    states = [*layers.named_parameters(), *layers.named_buffers()]
    without_values = {name: state.to("meta") for name, state in states}
    item = torch.empty(1, channels, height, width, device="meta")
    try:
        return tuple(torch.func.functional_call(layers, without_values, (item,)).shape[1:])
    except RuntimeError as error:
        raise ValueError(str(error)) from error
