"""GPT-2, as in trainer/keras/models/gpt.py."""

import functools
from typing import Any

import torch
from torch import nn

from dlbench.trainer.pytorch import initial, transformer

VARIANTS: dict[str, Any] = {
    "gpt2_small": {
        "INPUT_SHAPE": (1024,),
        "CLASSES": 50_257,
        "POSITIONS": 1024,
        "SIZE": {"width": 768, "heads": 12, "depth": 12},
    },
    "gpt_tiny": {
        "INPUT_SHAPE": (128,),
        "CLASSES": 256,
        "POSITIONS": 256,
        "SIZE": {"width": 128, "heads": 4, "depth": 4},
    },
}
TASK = "language"
FIXED_CLASSES = True
RECOMPUTES = True


def build(
    input_shape: tuple[int, ...], classes: int, name: str, recompute: bool = False
) -> nn.Module:
    config = transformer.BlockConfig(
        **VARIANTS[name]["SIZE"],
        causal=True,
        norm_first=True,
        epsilon=1e-5,
        activation=functools.partial(nn.GELU, approximate="tanh"),
        initializer=transformer.normal,
    )
    return GPT(classes, VARIANTS[name]["POSITIONS"], config, recompute)


class GPT(nn.Module):
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
