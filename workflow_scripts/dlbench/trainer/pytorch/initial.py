"""Layers of torch.nn with the initial weights of Keras's layers; biases are initially zero.

- glorot_uniform: X. Glorot and Y. Bengio (2010). Understanding the difficulty of training deep
  feedforward neural networks. AISTATS, equation 16; Keras's default.
- he_normal: K. He, X. Zhang, S. Ren and J. Sun (2015). Delving deep into rectifiers. ICCV,
  section 2.2, from a normal distribution truncated at two standard deviations.
- The initialization of torch.nn, another uniform distribution, is skipped.
"""

import math
from collections.abc import Callable
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
