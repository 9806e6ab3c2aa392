"""BERT, as in trainer/keras/models/bert_base.py."""

import torch
from torch import nn

from dlbench.trainer.pytorch import initial, transformer

TASK = "masked_language"
INPUT_SHAPE = (512,)
CLASSES = 30_522
FIXED_CLASSES = True
POSITIONS = 512
RECOMPUTES = True
SIZE = {"width": 768, "heads": 12, "depth": 12}


def build(input_shape: tuple[int, ...], classes: int, recompute: bool = False) -> nn.Module:
    config = transformer.BlockConfig(
        **SIZE,
        causal=False,
        norm_first=False,
        epsilon=1e-12,
        activation=nn.GELU,
        initializer=transformer.truncated,
    )
    return BERT(classes, config, recompute)


class BERT(nn.Module):
    """The token at each position: from (batch, tokens) to (batch, tokens, vocabulary)."""

    def __init__(self, vocabulary: int, config: transformer.BlockConfig, recompute: bool):
        super().__init__()
        self.words = initial.layer(
            nn.Embedding, vocabulary, config.width, initializer=config.initializer
        )
        self.positions = transformer.Positions(POSITIONS, config.width, config.initializer)
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
