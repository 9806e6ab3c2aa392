"""Losses and sums of each task under PyTorch: see Losses in dlbench/trainer/tasks.py.

- Inputs are a tensor or a NumPy array; the axes after the first may be in any order.
- Targets are whole numbers of int64, or masks of uint8 with channels first, as the logits.
"""

from typing import Any

import torch
from torch.nn import functional

from dlbench.trainer.tasks import Losses


class _Language:
    """Softmax cross-entropy of each token."""

    ignored = -100  # a target that is none; PyTorch's default

    def scaled(self, inputs: Any) -> torch.Tensor:
        return torch.as_tensor(inputs)

    def loss(self, targets: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        return self._cross_entropy(targets, logits, "mean")

    def sums(self, targets: torch.Tensor, logits: torch.Tensor) -> dict[str, Any]:
        return {"items": targets.numel(), "loss": self._cross_entropy(targets, logits, "sum")}

    def _cross_entropy(self, targets, logits, reduction):
        return functional.cross_entropy(
            logits.float().flatten(0, -2),
            targets.flatten(),
            ignore_index=self.ignored,
            reduction=reduction,
        )


class _MaskedLanguage(_Language):
    """Softmax cross-entropy of each masked token; targets elsewhere are -1."""

    ignored = -1

    def sums(self, targets: torch.Tensor, logits: torch.Tensor) -> dict[str, Any]:
        return super().sums(targets, logits) | {"items": (targets >= 0).sum()}


class _Classification(_Language):
    """Softmax cross-entropy of each image, how often its class is among the first one or five."""

    def scaled(self, inputs: Any) -> torch.Tensor:
        """uint8 pixels to the range -1 .. 1."""
        return torch.as_tensor(inputs).float().mul(2 / 255).sub_(1)

    def sums(self, targets: torch.Tensor, logits: torch.Tensor) -> dict[str, Any]:
        logits = logits.float()
        of_label = logits.gather(1, targets[:, None])
        higher = (logits > of_label).sum(1)
        finite = of_label[:, 0].isfinite()
        return super().sums(targets, logits) | {
            "top1": ((higher < 1) & finite).sum(),
            "top5": ((higher < 5) & finite).sum(),
        }


class _Segmentation:
    """Sigmoid cross-entropy of each pixel; intersection and union of masks and predictions."""

    def scaled(self, inputs: Any) -> torch.Tensor:
        """Each image with mean 0 and deviation 1: surveys differ in the unit of their light.

        An image of one value keeps a deviation of 1 / sqrt(its values), as with TensorFlow.
        """
        images = torch.as_tensor(inputs).float()
        values = images[0].numel()
        axes = tuple(range(1, images.ndim))
        deviation, mean = torch.std_mean(images, axes, correction=0, keepdim=True)
        return (images - mean) / deviation.clamp(min=values**-0.5)

    def loss(self, targets: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        return self._cross_entropy(targets, logits, "mean")

    def sums(self, targets: torch.Tensor, logits: torch.Tensor) -> dict[str, Any]:
        target, predicted = targets > 0, logits > 0
        return {
            "items": targets.numel(),
            "loss": self._cross_entropy(targets, logits, "sum"),
            "both": (target & predicted).sum(),
            "either": (target | predicted).sum(),
        }

    def _cross_entropy(self, masks, logits, reduction):
        return functional.binary_cross_entropy_with_logits(
            logits.float(), masks.float(), reduction=reduction
        )


LOSSES: dict[str, Losses] = {
    "classification": _Classification(),
    "segmentation": _Segmentation(),
    "language": _Language(),
    "masked_language": _MaskedLanguage(),
}
