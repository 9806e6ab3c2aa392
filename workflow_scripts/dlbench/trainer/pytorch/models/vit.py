"""Vision transformers, as in trainer/keras/models/vit.py."""

from typing import Any

import torch
from torch import nn

from dlbench.trainer.pytorch import initial, transformer

VARIANTS: dict[str, Any] = {
    "vit_b16": {
        "INPUT_SHAPE": (224, 224, 3),
        "CLASSES": 1000,
        "PATCH": 16,  # side in pixels
        "SIZE": {"width": 768, "heads": 12, "depth": 12},
    },
    "vit_tiny": {
        "INPUT_SHAPE": (32, 32, 3),
        "CLASSES": 10,
        "PATCH": 4,
        "SIZE": {"width": 64, "heads": 4, "depth": 4},
    },
}
TASK = "classification"
RECOMPUTES = True


def build(
    input_shape: tuple[int, ...], classes: int, name: str, recompute: bool = False
) -> nn.Module:
    config = transformer.BlockConfig(
        **VARIANTS[name]["SIZE"],
        causal=False,
        norm_first=True,
        epsilon=1e-6,
        activation=nn.GELU,
        initializer=transformer.truncated,
    )
    return ViT(input_shape, classes, VARIANTS[name]["PATCH"], config, recompute)


class ViT(nn.Module):
    """A classifier: from (batch, channels, height, width) to (batch, classes)."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        patch: int,
        config: transformer.BlockConfig,
        recompute: bool,
    ):
        super().__init__()
        height, wide, channels = input_shape
        if height % patch or wide % patch:
            raise ValueError(f"patches of {patch} pixels do not fill {height} x {wide}")
        tokens = (height // patch) * (wide // patch)
        self.patches = initial.layer(
            nn.Conv2d, channels, config.width, patch, stride=patch, initializer=config.initializer
        )
        self.token = transformer.ClassToken(config.width, config.initializer)
        self.positions = transformer.Positions(tokens + 1, config.width, config.initializer)
        self.blocks = transformer.Blocks(config, recompute)
        self.norm = transformer.norm(config)
        self.head = initial.dense(config.width, classes, config.initializer)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = self.blocks(self.positions(self.token(x)))
        return self.head(self.norm(x)[:, 0])
