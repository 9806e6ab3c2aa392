"""Layers of torch.nn whose weights begin as those of Keras's layers do; biases begin with zeros.

- glorot_uniform: X. Glorot and Y. Bengio (2010). Understanding the difficulty of training deep
  feedforward neural networks. AISTATS, equation 16; Keras's default.
- he_normal: K. He, X. Zhang, S. Ren and J. Sun (2015). Delving deep into rectifiers. ICCV,
  section 2.2, of a normal distribution without what lies beyond two standard deviations.
- torch.nn's own begin is a uniform distribution between both; it is not computed.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Initializer = Callable[[torch.Tensor], Any]
glorot_uniform: Initializer = nn.init.xavier_uniform_
# The standard deviation of a normal one, of which all beyond two of its deviations is cut off.
TRUNCATED = 0.87962566103423978


def he_normal(weight: torch.Tensor) -> torch.Tensor:
    """Draw anew the weights, (outputs, inputs, ...), of a layer with a rectifier."""
    deviation = math.sqrt(2 / weight[0].numel()) / TRUNCATED
    return nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)


def layer(
    kind: type[nn.Module], *arguments: Any, initializer: Initializer, **named: Any
) -> nn.Module:
    """A layer of torch.nn on the default device; its weight begins as said."""
    made = nn.utils.skip_init(kind, *arguments, device=torch.get_default_device(), **named)
    initializer(made.weight)
    if getattr(made, "bias", None) is not None:
        nn.init.zeros_(made.bias)
    return made


def dense(inputs: int, units: int, initializer: Initializer = glorot_uniform) -> nn.Module:
    return layer(nn.Linear, inputs, units, initializer=initializer)
