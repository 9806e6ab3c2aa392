"""Sigmoid cross-entropy of each pixel, and the intersection and union of masks and predictions."""

from typing import Any

import torch
from torch.nn import functional


def scaled(images: Any) -> torch.Tensor:
    """Each image with mean 0 and deviation 1: surveys differ in the unit of their light.

    An image of one value keeps a deviation of 1 / sqrt(its values), as with TensorFlow.
    """
    images = torch.as_tensor(images).float()
    values = images[0].numel()
    axes = tuple(range(1, images.ndim))
    deviation, mean = torch.std_mean(images, axes, correction=0, keepdim=True)
    return (images - mean) / deviation.clamp(min=values**-0.5)


def loss(masks: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(logits.float(), masks.float())


def sums(masks: torch.Tensor, logits: torch.Tensor) -> dict[str, Any]:
    target, predicted = masks > 0, logits > 0
    losses = functional.binary_cross_entropy_with_logits(
        logits.float(), masks.float(), reduction="sum"
    )
    return {
        "items": masks.numel(),
        "loss": losses,
        "both": (target & predicted).sum(),
        "either": (target | predicted).sum(),
    }
