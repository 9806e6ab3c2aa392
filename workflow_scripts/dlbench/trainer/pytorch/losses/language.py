"""Softmax cross-entropy of each token."""

from typing import Any

import torch
from torch.nn import functional


def scaled(tokens: Any) -> torch.Tensor:
    return torch.as_tensor(tokens)


def loss(tokens: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    return _cross_entropy(tokens, logits, "mean")


def sums(tokens: torch.Tensor, logits: torch.Tensor) -> dict[str, Any]:
    return {"items": tokens.numel(), "loss": _cross_entropy(tokens, logits, "sum")}


def _cross_entropy(tokens, logits, reduction):
    return functional.cross_entropy(
        logits.float().flatten(0, 1), tokens.flatten(), reduction=reduction
    )
