"""Transformers: GPT-2, BERT and vision transformers, and the layers that they share.

- A. Vaswani et al. (2017). Attention is all you need. NeurIPS, arXiv:1706.03762, section 3.
- All weights are in dense layers. `Attention` has none: it is one call of Keras's operation
  dot_product_attention, which is jax.nn.dot_product_attention under JAX (with cuDNN's kernel if it
  supports the shapes) and matrix products and a softmax (einsum) under TensorFlow, which has no
  fused kernel.
- Layers compute the shapes of their outputs, so that Keras does not trace them to find out.
- There is no dropout: it is off for timing, as in MLPerf's and torchtitan's pre-training.
- Initial weights are drawn from a normal distribution of standard deviation 0.02, for BERT and
  vision transformers truncated at two deviations; biases are zeros.

gpt2_small, the smallest GPT-2 that was published:
- A. Radford et al. (2019). Language models are unsupervised multitask learners. Section 2.3 and
  table 2; layers and sizes as in OpenAI's published weights: 12 blocks of width 768 with 12 heads,
  1024 positions, a vocabulary of 50 257 tokens, logits by the weights of the token embedding.
- Initial weights of the last layer of each branch are not scaled down.
- 124 439 808 parameters.
gpt_tiny, so small that it learns bytes in seconds on two cores:
- 4 blocks of width 128 with 4 heads, 256 positions, a vocabulary of 256 tokens (bytes).
- 858 880 parameters.
bert_base, with the head that learns masked tokens:
- J. Devlin et al. (2019). BERT. NAACL, arXiv:1810.04805, section 3 and appendix A; sizes as in
  Google's published uncased weights: 12 blocks of width 768 with 12 heads, 512 positions, a
  vocabulary of 30 522 tokens, two segments; here all tokens are in the first one.
- It learns masked tokens, not the next sentence, so it has no pooler. Logits are computed at all
  positions, as in Hugging Face's BertForMaskedLM. The mask is the last token of the vocabulary.
- 109 514 298 parameters, as BertForMaskedLM: 23 440 896 of the token embedding, 393 216 of the
  positions, 1 536 of the segments, 1 536 of their normalisation, 7 087 872 of each block, and in
  the head 592 128 of the dense layer and its normalisation and 30 522 biases. With the pooler
  (590 592) instead of the head they are the published 109 482 240.
vit_b16, ViT-B/16:
- A. Dosovitskiy et al. (2021). An image is worth 16x16 words. ICLR, arXiv:2010.11929, table 1 and
  section 3.1; one dense layer as the head, as there when it is fine-tuned, and in torchvision.
- 86 567 656 parameters for 224x224x3 and 1000 classes.
vit_tiny, so small that it trains in seconds on two cores; not DeiT's Ti/16:
- 4 blocks of width 64 with 4 heads on patches of 4 x 4 pixels of small images.
- 208 074 parameters for 32x32x3 and ten classes.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import layers, ops

VARIANTS: dict[str, Any] = {
    "gpt2_small": {
        "TASK": "language",
        "INPUT_SHAPE": (1024,),
        "CLASSES": 50_257,
        "FIXED_CLASSES": True,
        "POSITIONS": 1024,
        "SIZE": {"width": 768, "heads": 12, "depth": 12},
    },
    "gpt_tiny": {
        "TASK": "language",
        "INPUT_SHAPE": (128,),
        "CLASSES": 256,
        "FIXED_CLASSES": True,
        "POSITIONS": 256,
        "SIZE": {"width": 128, "heads": 4, "depth": 4},
    },
    "bert_base": {
        "TASK": "masked_language",
        "INPUT_SHAPE": (512,),
        "CLASSES": 30_522,
        "FIXED_CLASSES": True,
        "POSITIONS": 512,
        "SIZE": {"width": 768, "heads": 12, "depth": 12},
    },
    "vit_b16": {
        "TASK": "classification",
        "INPUT_SHAPE": (224, 224, 3),
        "CLASSES": 1000,
        "PATCH": 16,  # side in pixels
        "SIZE": {"width": 768, "heads": 12, "depth": 12},
    },
    "vit_tiny": {
        "TASK": "classification",
        "INPUT_SHAPE": (32, 32, 3),
        "CLASSES": 10,
        "PATCH": 4,
        "SIZE": {"width": 64, "heads": 4, "depth": 4},
    },
}
RECOMPUTES = True
DIVIDES = ("jax", "pytorch")  # whose devices can share its blocks: model_axis, tensor_parallel
DEVIATION = 0.02  # standard deviation of initial weights
Initializer = Callable[[], keras.initializers.Initializer]


def build(
    input_shape: tuple[int, ...], classes: int, constants: dict[str, Any], recompute: bool = False
) -> keras.Model:
    make = {"language": _gpt, "masked_language": _bert, "classification": _vit}[constants["TASK"]]
    inputs, outputs = make(input_shape, classes, constants, recompute)
    return keras.Model(inputs, outputs, name=constants["NAME"])


def _gpt(input_shape, classes, constants, recompute):
    gelu_tanh = functools.partial(keras.activations.gelu, approximate=True)
    differs = {"causal": True, "activation": gelu_tanh, "initializer": normal}
    config = BlockConfig(**constants["SIZE"], **differs, epsilon=1e-5)
    tokens = keras.Input(input_shape, dtype="int32")
    embedding = TokenEmbedding(classes, config.width, config.initializer, name="words")
    positions = Positions(constants["POSITIONS"], config.initializer, name="positions")
    x = blocks(positions(embedding(tokens)), config, recompute)
    x = layers.LayerNormalization(epsilon=config.epsilon)(x)
    return tokens, embedding(x, reverse=True)


def _bert(input_shape, classes, constants, recompute):
    config = BlockConfig(**constants["SIZE"], norm_first=False, epsilon=1e-12)
    tokens = keras.Input(input_shape, dtype="int32")
    embedding = TokenEmbedding(classes, config.width, config.initializer, name="words")
    positions = Positions(constants["POSITIONS"], config.initializer, name="positions")
    x = Segments(2, config.initializer, name="segments")(positions(embedding(tokens)))
    x = layers.LayerNormalization(epsilon=config.epsilon)(x)
    x = blocks(x, config, recompute)
    x = dense(config.width, config, activation=config.activation)(x)
    x = layers.LayerNormalization(epsilon=config.epsilon)(x)
    return tokens, Bias(name="logits")(embedding(x, reverse=True))


def _vit(input_shape, classes, constants, recompute):
    (height, wide), patch = input_shape[:2], constants["PATCH"]
    if height % patch or wide % patch:
        raise ValueError(f"patches of {patch} pixels do not fill {height} x {wide}")
    config = BlockConfig(**constants["SIZE"], epsilon=1e-6)
    images = keras.Input(input_shape)
    initializer = config.initializer()
    x = layers.Conv2D(config.width, patch, strides=patch, kernel_initializer=initializer)(images)
    tokens = (height // patch) * (wide // patch)
    x = layers.Reshape((tokens, config.width))(x)
    x = ClassToken(config.initializer, name="class")(x)
    x = Positions(tokens + 1, config.initializer, name="positions")(x)
    x = blocks(x, config, recompute)
    x = layers.LayerNormalization(epsilon=config.epsilon)(x)
    return images, dense(classes, config)(x[:, 0])


def normal() -> keras.initializers.Initializer:
    return keras.initializers.RandomNormal(stddev=DEVIATION)


def truncated() -> keras.initializers.Initializer:
    """A normal distribution cut off at two standard deviations."""
    return keras.initializers.TruncatedNormal(stddev=DEVIATION)


class BlockConfig(NamedTuple):
    """The settings that all blocks of a model share."""

    width: int  # of a token's vector; the heads must divide it
    heads: int
    depth: int  # how many blocks there are
    epsilon: float  # of layer normalisation, added to the variance
    causal: bool = False  # whether a token attends to itself and earlier tokens only
    norm_first: bool = True  # whether a block normalises its inputs, instead of its outputs
    # After the first dense layer, which is four times as wide.
    activation: Callable[[Any], Any] = keras.activations.gelu
    initializer: Initializer = truncated


class TokenEmbedding(layers.Layer):
    """The embedding of tokens; called with `reverse=True`, it gives logits by the same weights."""

    def __init__(self, vocabulary: int, width: int, initializer: Initializer, **named: Any):
        super().__init__(**named)
        self.vocabulary, self.width, self._initializer = vocabulary, width, initializer

    def build(self, input_shape: Any) -> None:
        self.embeddings = self.add_weight(
            (self.vocabulary, self.width), initializer=self._initializer(), name="embeddings"
        )

    def call(self, x: Any, reverse: bool = False) -> Any:
        if reverse:
            return ops.matmul(x, ops.transpose(self.embeddings))
        return ops.take(self.embeddings, x, axis=0)

    def compute_output_spec(self, x: Any, reverse: bool = False) -> keras.KerasTensor:
        shape = (*x.shape[:-1], self.vocabulary) if reverse else (*x.shape, self.width)
        return keras.KerasTensor(shape, self.compute_dtype)


class _Rows(layers.Layer):
    """Rows of weights that are learned."""

    def __init__(self, rows: int, initializer: Initializer, **named: Any):
        super().__init__(**named)
        self._rows, self._initializer = rows, initializer

    def build(self, input_shape: Any) -> None:
        self.embeddings = self.add_weight(
            (self._rows, input_shape[-1]), initializer=self._initializer(), name="embeddings"
        )

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape


class Positions(_Rows):
    """Adds the embedding of its position to each token; an item has at most `rows` tokens."""

    def call(self, x: Any) -> Any:
        return x + ops.convert_to_tensor(self.embeddings)[: x.shape[1]]


class Segments(_Rows):
    """Adds the embedding of the first segment to each token: an item is one text."""

    def call(self, x: Any) -> Any:
        return x + ops.convert_to_tensor(self.embeddings)[0]


class ClassToken(_Rows):
    """Puts a learned class token before the others."""

    def __init__(self, initializer: Initializer, **named: Any):
        super().__init__(1, initializer, **named)

    def call(self, x: Any) -> Any:
        token = ops.convert_to_tensor(self.embeddings)[None]
        token = ops.broadcast_to(token, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([token, x], axis=1)

    def compute_output_shape(self, input_shape: Any) -> Any:
        batch, tokens, width = input_shape
        return batch, tokens + 1, width


class Bias(layers.Layer):
    """Adds a bias to each output."""

    def build(self, input_shape: Any) -> None:
        self.bias = self.add_weight((input_shape[-1],), initializer="zeros", name="bias")

    def call(self, x: Any) -> Any:
        return x + self.bias

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape


class Attention(layers.Layer):
    """Scaled dot-product attention of several heads, which divide the width, without weights.

    From (batch, tokens, queries, keys and values side by side) to (batch, tokens, queries). Keys
    and values may have fewer heads, each for several of the queries in turn. `turn`, of arrays
    (batch, tokens, heads, size), gives queries and keys their positions.
    """

    attends = True

    def __init__(
        self,
        width: int,
        heads: int,
        causal: bool,
        key_value_heads: int | None = None,
        turn: Callable[[Any], Any] = lambda x: x,
        **named: Any,
    ):
        super().__init__(**named)
        if width % heads:
            raise ValueError(f"the heads must divide the width: {width} in {heads} parts")
        self.width, self.size, self.causal, self.turn = width, width // heads, causal, turn
        self.ends = [width, width + (key_value_heads or heads) * self.size]
        self.all_width = 2 * self.ends[1] - width
        self.groups = 1  # of heads, each with its queries, keys and values side by side

    def call(self, x: Any) -> Any:
        tokens = x.shape[1]
        x = ops.reshape(x, (-1, tokens, self.groups, self.all_width // self.groups))
        query, key, value = (
            ops.reshape(part, (-1, tokens, part.shape[3] * self.groups // self.size, self.size))
            for part in ops.split(x, [end // self.groups for end in self.ends], axis=-1)
        )
        seen = ops.dot_product_attention(
            self.turn(query), self.turn(key), value, is_causal=self.causal
        )
        return ops.reshape(seen, (-1, tokens, self.width))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*input_shape[:-1], self.width)


class Recomputed(layers.Layer):
    """A block, a keras.Model, whose activations are computed again in the backward pass."""

    recomputes = True  # its products count once more: model_flops.py

    def __init__(self, block: keras.Model, **named: Any):
        super().__init__(**named)
        self.block = block

    def call(self, x: Any) -> Any:
        if isinstance(x, keras.KerasTensor):  # of shapes alone
            return self.block(x)
        return keras.remat(self.block)(x)

    def compute_output_spec(self, x: Any) -> Any:
        return self.block.compute_output_spec(x)


def blocks(x: keras.KerasTensor, config: BlockConfig, recompute: bool) -> keras.KerasTensor:
    """All blocks of a model."""
    for number in range(config.depth):
        x = block(x, lambda y: _block(y, config), recompute, number)
    return x


def block(x: keras.KerasTensor, make: Callable[[Any], Any], recompute: bool, number: int) -> Any:
    """`make(x)`, a block of a model, which may be computed again in the backward pass."""
    if not recompute:
        return make(x)
    inside = keras.Input(x.shape[1:], dtype=x.dtype)
    made = keras.Model(inside, make(inside), name=f"block{number}")
    return Recomputed(made, name=f"recomputed{number}")(x)


def dense(
    units: int, config: BlockConfig, axis: int | None = None, joins: int = 1, **named: Any
) -> keras.layers.Dense:
    """A dense layer with the model's initializer.

    `axis`: of its kernel, along which devices may share it; `joins`: how many matrices it joins.
    """
    made = layers.Dense(units, kernel_initializer=config.initializer(), **named)
    made.shared_axis, made.joins = axis, joins
    return made


def _block(x, config):
    x = _residual(x, config, lambda y: _attention(y, config))
    return _residual(x, config, lambda y: _two_layers(y, config))


def _residual(x, config, inner):
    norm = layers.LayerNormalization(epsilon=config.epsilon)
    if config.norm_first:
        return layers.Add()([x, inner(norm(x))])
    return norm(layers.Add()([x, inner(x)]))


def _attention(x, config):
    x = dense(3 * config.width, config, axis=1, joins=3)(x)
    attention = Attention(config.width, config.heads, config.causal)
    return dense(config.width, config, axis=0)(attention(x))


def _two_layers(x, config):
    x = dense(4 * config.width, config, axis=1, activation=config.activation)(x)
    return dense(config.width, config, axis=0)(x)
