"""Output shapes of layers, found without computing anything."""

import torch
from torch import nn


def after(layers: nn.Module, input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The output shape of layers for one item, without the batch axis.

    Args:
        input_shape: (height, width, channels).

    Raises:
        ValueError: an item is too small for the layers.
    """
    height, width, channels = input_shape
    states = [*layers.named_parameters(), *layers.named_buffers()]
    without_values = {name: state.to("meta") for name, state in states}
    item = torch.empty(1, channels, height, width, device="meta")
    try:
        return tuple(torch.func.functional_call(layers, without_values, (item,)).shape[1:])
    except RuntimeError as error:
        raise ValueError(str(error)) from error
