"""Vision transformers, as in dlbench/trainer/keras/layers/vit.py."""

import torch
from torch import nn

from dlbench.trainer.pytorch.layers import initial, transformer


class Model(nn.Module):
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


def network(
    size: transformer.Size,
    patch: int,
    input_shape: tuple[int, ...],
    classes: int,
    recompute: bool,
) -> nn.Module:
    config = transformer.BlockConfig(*size, False, True, 1e-6, nn.GELU, transformer.truncated)
    return Model(input_shape, classes, patch, config, recompute)
