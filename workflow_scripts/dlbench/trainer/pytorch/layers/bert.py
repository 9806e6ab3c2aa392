"""BERT, as in dlbench/trainer/keras/layers/bert.py."""

import torch
from torch import nn

from dlbench.trainer.pytorch.layers import initial, transformer


class Model(nn.Module):
    """The token at each position: from (batch, tokens) to (batch, tokens, vocabulary)."""

    def __init__(
        self, vocabulary: int, positions: int, config: transformer.BlockConfig, recompute: bool
    ):
        super().__init__()
        self.words = initial.layer(
            nn.Embedding, vocabulary, config.width, initializer=config.initializer
        )
        self.positions = transformer.Positions(positions, config.width, config.initializer)
        self.segments = transformer.Segments(2, config.width, config.initializer)
        self.norm = transformer.norm(config)
        self.blocks = transformer.Blocks(config, recompute)
        self.dense = initial.dense(config.width, config.width, config.initializer)
        self.activation = config.activation()
        self.last_norm = transformer.norm(config)
        self.logits = transformer.TiedLogits()
        self.bias = transformer.Bias(vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.segments(self.positions(self.words(tokens))))
        x = self.last_norm(self.activation(self.dense(self.blocks(x))))
        return self.bias(self.logits(x, self.words.weight))


def network(size: transformer.Size, vocabulary: int, positions: int, recompute: bool) -> nn.Module:
    config = transformer.BlockConfig(*size, False, False, 1e-12, nn.GELU, transformer.truncated)
    return Model(vocabulary, positions, config, recompute)
