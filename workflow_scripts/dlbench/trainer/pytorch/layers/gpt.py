"""GPT-2, as in dlbench/trainer/keras/layers/gpt.py."""

import functools

import torch
from torch import nn

from dlbench.trainer.pytorch.layers import initial, transformer


class Model(nn.Module):
    """The next token at each position: from (batch, tokens) to (batch, tokens, vocabulary)."""

    def __init__(
        self, vocabulary: int, positions: int, config: transformer.BlockConfig, recompute: bool
    ):
        super().__init__()
        self.words = initial.layer(
            nn.Embedding, vocabulary, config.width, initializer=config.initializer
        )
        self.positions = transformer.Positions(positions, config.width, config.initializer)
        self.blocks = transformer.Blocks(config, recompute)
        self.norm = transformer.norm(config)
        self.logits = transformer.TiedLogits()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.positions(self.words(tokens)))
        return self.logits(self.norm(x), self.words.weight)


def network(size: transformer.Size, vocabulary: int, positions: int, recompute: bool) -> nn.Module:
    gelu = functools.partial(nn.GELU, approximate="tanh")
    config = transformer.BlockConfig(*size, True, True, 1e-5, gelu, transformer.normal)
    return Model(vocabulary, positions, config, recompute)
