"""GPT-2, BERT and vision transformers, as in trainer/keras/models/transformers.py.

Attention is torch.nn.functional.scaled_dot_product_attention, which chooses its kernel by device,
dtype and shape.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.utils import checkpoint

from dlbench import Error
from dlbench.trainer.pytorch import layers

CONSTANTS_OF = "keras/models"
DEVIATION = 0.02  # standard deviation of initial weights


def build(
    input_shape: tuple[int, ...], classes: int, constants: dict[str, Any], recompute: bool = False
) -> nn.Module:
    task, size, positions = constants["TASK"], constants["SIZE"], constants.get("POSITIONS", 0)
    if task == "language":
        gelu_tanh = functools.partial(nn.GELU, approximate="tanh")
        differs: dict[str, Any] = {"causal": True, "activation": gelu_tanh, "initializer": normal}
        return GPT(classes, positions, BlockConfig(**size, **differs, epsilon=1e-5), recompute)
    if task == "masked_language":
        config = BlockConfig(**size, norm_first=False, epsilon=1e-12)
        return BERT(classes, positions, config, recompute)
    config = BlockConfig(**size, epsilon=1e-6)
    return ViT(input_shape, classes, constants["PATCH"], config, recompute)


def normal(weight: torch.Tensor) -> torch.Tensor:
    return nn.init.normal_(weight, std=DEVIATION)


def truncated(weight: torch.Tensor) -> torch.Tensor:
    """A normal distribution cut off at two standard deviations."""
    return nn.init.trunc_normal_(weight, std=DEVIATION, a=-2 * DEVIATION, b=2 * DEVIATION)


class BlockConfig(NamedTuple):
    """The settings that all blocks of a model share: see the file for Keras."""

    width: int
    heads: int
    depth: int
    epsilon: float
    causal: bool = False
    norm_first: bool = True
    activation: Callable[[], nn.Module] = nn.GELU
    initializer: layers.Initializer = truncated


class TiedLogits(nn.Module):
    """Logits by the weights of the embedding, which are an argument."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, weight)


class _Rows(nn.Embedding):
    """Learned rows of weights; unlike those of an embedding, its inputs are not row numbers."""

    def __init__(self, rows: int, width: int, initializer: layers.Initializer):
        made = layers.layer(nn.Embedding, rows, width, initializer=initializer)
        super().__init__(rows, width, _weight=made.weight.detach())


class Positions(_Rows):
    """Adds the embedding of its position to each token; an item has at most `rows` tokens."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight[: x.shape[1]]


class Segments(_Rows):
    """Adds the embedding of the first segment to each token: an item is one text."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight[0]


class ClassToken(_Rows):
    """Puts a learned class token before the others."""

    def __init__(self, width: int, initializer: layers.Initializer):
        super().__init__(1, width, initializer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        token = self.weight.to(x.dtype)[None].expand(len(x), -1, -1)
        return torch.cat([token, x], 1)


class Bias(nn.Module):
    """Adds a bias to each output."""

    def __init__(self, outputs: int):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.bias


class Attention(nn.Module):
    """Scaled dot-product attention of several heads, which divide the width, without weights.

    From (batch, tokens, queries, keys and values side by side) to (batch, tokens, queries). Keys
    and values may have fewer heads, each for several of the queries in turn. `turn`, of arrays
    (batch, heads, tokens, size), gives queries and keys their positions.
    """

    def __init__(self, width: int, heads: int, causal: bool, key_value_heads: int | None = None):
        super().__init__()
        if width % heads:
            raise ValueError(f"the heads must divide the width: {width} in {heads} parts")
        self.size, self.causal = width // heads, causal
        others = (key_value_heads or heads) * self.size
        self.grouped = others < width
        self.widths: tuple[int, ...] = (width, others, others)

    def divide(self, ranks: int) -> tuple[int, ...]:
        """Keep a rank's share of the heads. Returns the widths of all queries, keys and values."""
        widths, heads = self.widths, min(self.widths) // self.size
        if heads % ranks:  # those of the queries are a multiple
            why = f"{ranks} ranks do not divide {heads} heads"
            raise Error(f"tensor_parallel: {why}: choose another shard_size")
        self.widths = tuple(width // ranks for width in widths)
        return widths

    def forward(
        self, x: torch.Tensor, turn: Callable[[torch.Tensor], torch.Tensor] = lambda x: x
    ) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (-1, self.size)).transpose(1, 2) for part in x.split(self.widths, -1)
        )
        y = functional.scaled_dot_product_attention(
            turn(query), turn(key), value, is_causal=self.causal, enable_gqa=self.grouped
        )
        return y.transpose(1, 2).flatten(2)


class Block(nn.Module):
    """Attention and two dense layers, each with a residual connection."""

    def __init__(self, config: BlockConfig):
        super().__init__()
        self.norm_first = config.norm_first
        # In the order in which Keras's layers are made.
        self.norm1 = norm(config)
        self.qkv = layers.dense(config.width, 3 * config.width, config.initializer)
        self.attention = Attention(config.width, config.heads, config.causal)
        self.out = layers.dense(config.width, config.width, config.initializer)
        self.norm2 = norm(config)
        self.up = layers.dense(config.width, 4 * config.width, config.initializer)
        self.activation = config.activation()
        self.down = layers.dense(4 * config.width, config.width, config.initializer)

    def divide(self, ranks: int) -> dict[str, tuple[int, ...]]:
        """The layers that ranks share: see strategies/tensor_parallel.py."""
        widths = self.attention.divide(ranks)
        return {"qkv": widths, "out": (), "up": (self.up.out_features,), "down": ()}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.norm_first:
            x = x + self._attend(self.norm1(x))
            return x + self._two_layers(self.norm2(x))
        x = self.norm1(x + self._attend(x))
        return self.norm2(x + self._two_layers(x))

    def _attend(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.attention(self.qkv(x)))

    def _two_layers(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.activation(self.up(x)))


class Blocks(nn.ModuleList):
    """All blocks of a model; `recompute`: the backward pass computes activations again."""

    def __init__(self, config: Any, recompute: bool, kind: Callable[..., nn.Module] = Block):
        super().__init__(kind(config) for _ in range(config.depth))
        self._recompute = recompute
        for block in self:
            block.recomputes = recompute  # its products count once more: model_flops.py

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self:
            x = self.call(block, x)
        return x

    def call(self, block: nn.Module, *inputs: torch.Tensor) -> Any:
        """One of the blocks, for models that give their blocks more than one input."""
        if self._recompute and torch.is_grad_enabled():
            return checkpoint.checkpoint(block, *inputs, use_reentrant=False)
        return block(*inputs)


def norm(config: BlockConfig) -> nn.LayerNorm:
    """A layer normalisation with the model's epsilon."""
    return nn.LayerNorm(config.width, eps=config.epsilon)


class GPT(nn.Module):
    """The next token at each position: from (batch, tokens) to (batch, tokens, vocabulary)."""

    def __init__(self, vocabulary: int, positions: int, config: BlockConfig, recompute: bool):
        super().__init__()
        self.words = layers.layer(
            nn.Embedding, vocabulary, config.width, initializer=config.initializer
        )
        self.positions = Positions(positions, config.width, config.initializer)
        self.blocks = Blocks(config, recompute)
        self.norm = norm(config)
        self.logits = TiedLogits()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.positions(self.words(tokens)))
        return self.logits(self.norm(x), self.words.weight)


class BERT(nn.Module):
    """The token at each position: from (batch, tokens) to (batch, tokens, vocabulary)."""

    def __init__(self, vocabulary: int, positions: int, config: BlockConfig, recompute: bool):
        super().__init__()
        self.words = layers.layer(
            nn.Embedding, vocabulary, config.width, initializer=config.initializer
        )
        self.positions = Positions(positions, config.width, config.initializer)
        self.segments = Segments(2, config.width, config.initializer)
        self.norm = norm(config)
        self.blocks = Blocks(config, recompute)
        self.dense = layers.dense(config.width, config.width, config.initializer)
        self.activation = config.activation()
        self.last_norm = norm(config)
        self.logits = TiedLogits()
        self.bias = Bias(vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.segments(self.positions(self.words(tokens))))
        x = self.last_norm(self.activation(self.dense(self.blocks(x))))
        return self.bias(self.logits(x, self.words.weight))


class ViT(nn.Module):
    """A classifier: from (batch, channels, height, width) to (batch, classes)."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        patch: int,
        config: BlockConfig,
        recompute: bool,
    ):
        super().__init__()
        height, wide, channels = input_shape
        if height % patch or wide % patch:
            raise ValueError(f"patches of {patch} pixels do not fill {height} x {wide}")
        tokens = (height // patch) * (wide // patch)
        self.patches = layers.layer(
            nn.Conv2d, channels, config.width, patch, stride=patch, initializer=config.initializer
        )
        self.token = ClassToken(config.width, config.initializer)
        self.positions = Positions(tokens + 1, config.width, config.initializer)
        self.blocks = Blocks(config, recompute)
        self.norm = norm(config)
        self.head = layers.dense(config.width, classes, config.initializer)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = self.blocks(self.positions(self.token(x)))
        return self.head(self.norm(x)[:, 0])
