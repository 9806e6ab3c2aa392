"""Layers as Keras has them: initial weights, convolution, batch normalisation, pooling.

- glorot_uniform: X. Glorot and Y. Bengio (2010). Understanding the difficulty of training deep
  feedforward neural networks. AISTATS, equation 16; Keras's default.
- he_normal: K. He, X. Zhang, S. Ren and J. Sun (2015). Delving deep into rectifiers. ICCV,
  section 2.2, from a normal distribution truncated at two standard deviations.
- The initialization of torch.nn, another uniform distribution, is skipped; biases are initially
  zero.
- The operation of batch normalisation is PyTorch's own. Its moving variance has Bessel's
  correction, as in algorithm 2 of the publication (trainer/keras/convolution.py); Keras's has not.
  Training does not use it, and in an evaluation the difference is small: n against n - 1 for n
  values of a map in a batch.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

Initializer = Callable[[torch.Tensor], Any]
glorot_uniform: Initializer = nn.init.xavier_uniform_
# Standard deviation of the standard normal distribution truncated at -2 and 2.
TRUNCATED = 0.87962566103423978


def he_normal(weight: torch.Tensor) -> torch.Tensor:
    """Initialize the weights, (outputs, inputs, ...), of a layer that a ReLU follows."""
    deviation = math.sqrt(2 / weight[0].numel()) / TRUNCATED
    return nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)


def layer(
    kind: type[nn.Module], *arguments: Any, initializer: Initializer, **named: Any
) -> nn.Module:
    """A layer of torch.nn on the default device, initialized by `initializer`."""
    made = nn.utils.skip_init(kind, *arguments, device=torch.get_default_device(), **named)
    initializer(made.weight)
    if getattr(made, "bias", None) is not None:
        nn.init.zeros_(made.bias)
    return made


def dense(inputs: int, units: int, initializer: Initializer = glorot_uniform) -> nn.Module:
    return layer(nn.Linear, inputs, units, initializer=initializer)


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
    initializer: Initializer = he_normal,
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
    return layer(
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

    Under DistributedDataParallel each device normalises its own shard of the batch. `momentum` is
    the weight of the old moving statistics; torch.nn's is 1 - this. With `scale` the outputs have a
    learned factor.
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
