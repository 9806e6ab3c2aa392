"""Llama, and Mixtral, which is one with a mixture of experts in each block.

- A. Grattafiori et al. (2024). The Llama 3 herd of models, arXiv:2407.21783, section 3.2, and
  H. Touvron et al. (2023). LLaMA, arXiv:2302.13971, section 2.2: root mean square normalisation
  before each branch, gated dense layers (SwiGLU), rotary positions, fewer heads of keys and values
  than of queries, logits by weights of their own, no biases. Queries, keys and values are one
  product, and so are gates and what they gate.
- A. Q. Jiang et al. (2024). Mixtral of experts, arXiv:2401.04088, section 2: a router chooses two
  of eight experts, which are such gated layers, for each token, and weights their outputs by a
  softmax over both. No token is dropped.
- Under Keras each expert computes all tokens, with weight zero where it was not chosen: no
  operation for groups of rows works under both TensorFlow and JAX. So a step computes, and keeps
  in memory, four times what the experts need. FLOPs and MFU count what they need, two experts a
  token, which is what PyTorch computes.
- While it trains, Mixtral adds BALANCE times a loss that balances the experts to the loss of the
  tokens, which is logged alone: W. Fedus et al. (2022). Switch transformers. JMLR 23(120),
  equations 4 to 6. Means are over the tokens of a device and, as in Hugging Face's
  MixtralForCausalLM, over all blocks together. It is 2 if all experts are chosen equally often.
- Sizes, EPSILON, BALANCE and the deviation of initial weights are those of the published
  config.json of Llama-3.1-8B and Mixtral-8x7B-v0.1. The tiny ones learn bytes in seconds.

Parameters: 8 030 261 248 of llama31_8b; 853 120 of llama_tiny; 46 702 792 704 of mixtral_8x7b, of
which a token meets 12 879 925 248; and 2 626 688 of mixtral_tiny.
"""

import functools
import types
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from dlbench.trainer.keras.models.transformers import Attention, TokenEmbedding, block, normal

TASK = "language"
FIXED_CLASSES = True
RECOMPUTES = True
DIVIDES = ("pytorch",)
EPSILON = 1e-5
BALANCE = 0.02
VARIANTS: dict[str, Any] = {
    "llama31_8b": {
        "INPUT_SHAPE": (8192,), "CLASSES": 128_256, "POSITIONS": 131_072,
        "TURNS": {"base": 500_000.0, "slower": 8.0},
        "SIZE": {"width": 4096, "heads": 32, "key_value_heads": 8, "hidden": 14_336, "depth": 32},
    },
    "llama_tiny": {
        "INPUT_SHAPE": (128,), "CLASSES": 256, "TURNS": {"base": 10_000.0},
        "SIZE": {"width": 128, "heads": 4, "key_value_heads": 2, "hidden": 384, "depth": 4},
    },
    "mixtral_8x7b": {
        "INPUT_SHAPE": (4096,), "CLASSES": 32_000, "POSITIONS": 32_768,
        "TURNS": {"base": 1_000_000.0},
        "SIZE": {"width": 4096, "heads": 32, "key_value_heads": 8, "hidden": 14_336, "depth": 32,
                 "experts": 8, "chosen": 2}, "DIVIDES": (),
    },
    "mixtral_tiny": {
        "INPUT_SHAPE": (128,), "CLASSES": 256, "TURNS": {"base": 10_000.0},
        "SIZE": {"width": 128, "heads": 4, "key_value_heads": 2, "hidden": 192, "depth": 4,
                 "experts": 8, "chosen": 2}, "DIVIDES": (),
    },
}  # fmt: skip


def build(
    input_shape: tuple[int, ...], classes: int, constants: dict[str, Any], recompute: bool = False
) -> keras.Model:
    config = types.SimpleNamespace(**{"experts": 0, **constants["SIZE"]})
    turns = frequencies(config.width // config.heads, **constants["TURNS"])
    turn = functools.partial(_turned, turns=turns)
    tokens = keras.Input(input_shape, dtype="int32")
    x, routed = TokenEmbedding(classes, config.width, normal, name="words")(tokens), []
    for number in range(config.depth):
        x, *routing = block(x, lambda y: _block(y, config, turn), recompute, number)
        routed += routing
    logits = _dense(classes, _norm(x))
    if routed:
        logits = Balanced(autocast=False)([logits, *routed])
    return keras.Model(tokens, logits, name=constants["NAME"])


def _block(x, config, turn):
    """[outputs] of a block, with experts [outputs, routing]."""
    attend = Attention(config.width, config.heads, True, config.key_value_heads, turn)
    x = x + _dense(config.width, attend(_dense(attend.all_width, _norm(x))))
    if config.experts:
        y, routing = Experts(config)(_norm(x))
        return [x + y, routing]
    gate, y = ops.split(_dense(2 * config.hidden, _norm(x)), 2, axis=-1)
    return [x + _dense(config.width, ops.silu(gate) * y)]


def _norm(x):
    return layers.RMSNormalization(epsilon=EPSILON)(x)


def _dense(units, x):
    return layers.Dense(units, use_bias=False, kernel_initializer=normal())(x)


def frequencies(size: int, base: float, slower: float = 1.0) -> np.ndarray:
    """Radians a token by which each pair of a head turns, elements i and i + size / 2.

    J. Su et al. (2021). RoFormer, arXiv:2104.09864, section 3.4.2. In Llama 3.1 those are slower
    that turn less than once in 8 192 tokens, and in part those that turn less than four times.
    """
    found = base ** -(np.arange(0, size, 2) / size)
    stays = np.clip((8192 * found / (2 * np.pi) - 1) / 3, 0, 1)
    return (found * (stays + (1 - stays) / slower)).astype(np.float32)


def _turned(x, turns):
    """Queries or keys, (batch, tokens, heads, size), turned by their positions."""
    # In each block; TensorFlow makes constants of them, XLA on CPUs computes them each time.
    angles = ops.arange(x.shape[1], dtype="float32")[:, None, None] * turns
    cos, sin = ops.cos(angles), ops.sin(angles)
    first, second = ops.split(ops.cast(x, "float32"), 2, axis=-1)
    both = [first * cos - second * sin, second * cos + first * sin]
    return ops.cast(ops.concatenate(both, axis=-1), x.dtype)


class Experts(layers.Layer):
    """From (batch, tokens, width) to the same, and to (batch, 2, experts).

    The latter is how often each expert was chosen, and its probability, as means over tokens.
    """

    def __init__(self, config: types.SimpleNamespace, **named: Any):
        super().__init__(**named)
        self.config = config

    def build(self, input_shape: Any) -> None:
        width, hidden, experts = input_shape[-1], self.config.hidden, self.config.experts
        shapes = (width, experts), (experts, width, 2 * hidden), (experts, hidden, width)
        self.router, self.up, self.down = (
            self.add_weight(shape, initializer=normal(), name=name)  # else of the same numbers
            for name, shape in zip(("router", "up", "down"), shapes, strict=True)
        )

    def call(self, x: Any) -> Any:
        probability = ops.softmax(ops.cast(ops.matmul(x, self.router), "float32"))
        weights, chosen = ops.top_k(probability, self.config.chosen)
        weights = weights / ops.sum(weights, axis=-1, keepdims=True)
        chosen = ops.one_hot(chosen, self.config.experts, dtype="float32")
        shares = ops.cast(ops.sum(chosen * weights[..., None], axis=2), x.dtype)
        gate, y = ops.split(ops.einsum("btw,ewh->bteh", x, self.up), 2, axis=-1)
        y = ops.einsum("bteh,ehw->btw", ops.silu(gate) * y * shares[..., None], self.down)
        return y, ops.mean(ops.stack([ops.sum(chosen, axis=2), probability], axis=1), axis=2)

    def compute_output_spec(self, x: Any) -> Any:
        routing = keras.KerasTensor((x.shape[0], 2, self.config.experts), "float32")
        return keras.KerasTensor(x.shape, self.compute_dtype), routing

    def products(self, tokens: int) -> list[tuple[int, int, int]]:
        """(rows, inputs, outputs) of the products that an item needs: trainer/keras/flops.py."""
        width, hidden, rows = self.config.width, self.config.hidden, tokens * self.config.chosen
        router = (tokens, width, self.config.experts)
        return [router, (rows, width, 2 * hidden), (rows, hidden, width)]


class Balanced(layers.Layer):
    """The logits, which are the first of its inputs; the others are the routing of each block."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        if training:
            often, probability = ops.unstack(ops.mean(ops.stack(inputs[1:]), axis=(0, 1)))
            self.add_loss(BALANCE * inputs[1].shape[-1] * ops.sum(often * probability))
        return inputs[0]
