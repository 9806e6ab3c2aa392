"""Llama and Mixtral, as in trainer/keras/models/llama.py.

- Tables of angles are computed once for all blocks, in each forward pass.
- Rows are sorted by expert, and torch.nn.functional.grouped_mm multiplies each group by its
  expert's weights: only chosen experts compute, and no shape depends on a value. Without a kernel
  for that, on CPUs and in float32, PyTorch loops over the experts.
- While it trains, Mixtral returns its logits and the loss that balances the experts.
"""

import math
import types
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dlbench.trainer.pytorch import layers
from dlbench.trainer.pytorch.models.transformers import Attention, Blocks, normal

CONSTANTS_OF = "keras/models"


def build(
    input_shape: tuple[int, ...], classes: int, constants: dict[str, Any], recompute: bool = False
) -> nn.Module:
    return Llama(classes, constants, recompute)


class Llama(nn.Module):
    """The next token at each position: from (batch, tokens) to (batch, tokens, vocabulary)."""

    def __init__(self, vocabulary: int, constants: dict[str, Any], recompute: bool):
        super().__init__()
        config = types.SimpleNamespace(**{"experts": 0, **constants["SIZE"]})
        self.balance = constants["BALANCE"]
        self.words = layers.layer(nn.Embedding, vocabulary, config.width, initializer=normal)
        self.blocks = Blocks(config, recompute, lambda _: Block(config, constants["EPSILON"]))
        self.norm = nn.RMSNorm(config.width, constants["EPSILON"])
        self.logits = _dense(config.width, vocabulary)
        turns = frequencies(config.width // config.heads, **constants["TURNS"])
        self.register_buffer("frequencies", turns, persistent=False)

    def forward(self, tokens: torch.Tensor) -> Any:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        angles = places[:, None] * self.frequencies
        x, cos, sin, routed = self.words(tokens), angles.cos(), angles.sin(), []
        for block in self.blocks:
            x, *routing = self.blocks.call(block, x, cos, sin)
            routed += routing
        logits = self.logits(self.norm(x))
        if not (self.training and routed):
            return logits
        often, probability = torch.stack(routed).mean(0)
        return logits, self.balance * len(often) * (often * probability).sum()


class Block(nn.Module):
    """Attention and gated dense layers or experts, each with a residual connection.

    From (x, cos, sin) to (x,), with experts to (x, routing).
    """

    def __init__(self, config: types.SimpleNamespace, epsilon: float):
        super().__init__()
        width = config.width
        self.norm1 = nn.RMSNorm(width, epsilon)
        self.attention = Attention(width, config.heads, True, config.key_value_heads)
        self.qkv = _dense(width, sum(self.attention.widths))
        self.out = _dense(width, width)
        self.norm2 = nn.RMSNorm(width, epsilon)
        self.inner = (
            Experts(config)
            if config.experts
            else nn.Sequential(
                _dense(width, 2 * config.hidden), SwiGLU(), _dense(config.hidden, width)
            )
        )

    def divide(self, ranks: int) -> dict[str, tuple[int, ...]]:
        widths, hidden = self.attention.divide(ranks), self.inner[2].in_features
        return {"qkv": widths, "out": (), "inner.0": 2 * (hidden,), "inner.2": ()}

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        def turned(part):
            first, second = part.chunk(2, -1)
            both = first * cos - second * sin, second * cos + first * sin
            return torch.cat(both, -1).to(part.dtype)

        x = x + self.out(self.attention(self.qkv(self.norm1(x)), turned))
        y = self.inner(self.norm2(x))
        y, *routing = y if isinstance(y, tuple) else (y,)
        return x + y, *routing


class SwiGLU(nn.Module):
    """The second half of the inputs, gated by the first."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, x = x.chunk(2, -1)
        return functional.silu(gate) * x


class Experts(nn.Module):
    """From (batch, tokens, width) to the same, and to (2, experts).

    The latter is how often each expert was chosen, and its probability, as means over all tokens.
    """

    def __init__(self, config: types.SimpleNamespace):
        super().__init__()
        width, hidden, experts = config.width, config.hidden, config.experts
        self.chosen = config.chosen
        self.router = nn.Parameter(normal(torch.empty(width, experts)))
        self.up = nn.Parameter(normal(torch.empty(experts, width, 2 * hidden)))
        self.down = nn.Parameter(normal(torch.empty(experts, hidden, width)))
        self.gated = SwiGLU()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = x.flatten(0, 1) @ self.router
        probability = logits.float().softmax(-1)
        weights, chosen = probability.topk(self.chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        order = chosen.flatten().argsort(stable=True)
        each = torch.arange(len(self.up), device=x.device)
        often = (chosen[..., None] == each).sum((0, 1))
        ends = often.cumsum(0).int()
        # Autocast, which casts for the router, does not know grouped_mm.
        tokens, up, down = (t.to(logits.dtype) for t in (x.flatten(0, 1), self.up, self.down))
        rows = functional.grouped_mm(tokens[order // self.chosen], up, offs=ends)
        rows = functional.grouped_mm(self.gated(rows), down, offs=ends)[order.argsort()]
        y = (rows.unflatten(0, chosen.shape) * weights[..., None].to(rows.dtype)).sum(1)
        routing = torch.stack([often / len(logits), probability.mean(0)])
        return y.to(x.dtype).view_as(x), routing


def frequencies(size: int, base: float, slower: float = 1.0) -> torch.Tensor:
    """Radians a token of each pair of a head's elements: see the file for Keras."""
    found = base ** -(torch.arange(0, size, 2, dtype=torch.float64) / size)
    stays = ((8192 * found / (2 * math.pi) - 1) / 3).clamp(0, 1)
    return (found * (stays + (1 - stays) / slower)).float()


def _dense(inputs, units):
    return layers.layer(nn.Linear, inputs, units, bias=False, initializer=normal)
