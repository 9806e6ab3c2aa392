"""Softmax cross-entropy of each image, and how often its class is among the first one or five."""

from typing import Any

import torch
from torch.nn import functional


def scaled(images: Any) -> torch.Tensor:
    """uint8 pixels to the range -1 .. 1."""
    return torch.as_tensor(images).float().mul(2 / 255).sub_(1)


def loss(labels: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.float(), labels)


def sums(labels: torch.Tensor, logits: torch.Tensor) -> dict[str, Any]:
    logits = logits.float()
    of_label = logits.gather(1, labels[:, None])
    higher = (logits > of_label).sum(1)
    finite = of_label[:, 0].isfinite()
    return {
        "items": len(labels),
        "loss": functional.cross_entropy(logits, labels, reduction="sum"),
        "top1": ((higher < 1) & finite).sum(),
        "top5": ((higher < 5) & finite).sum(),
    }
