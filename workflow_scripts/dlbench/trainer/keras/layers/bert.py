"""BERT: embeddings of tokens, positions and segments, post-norm blocks, a head for masks."""

import keras
from keras import layers

from dlbench.trainer.keras.layers import transformer


def network(
    name: str,
    size: transformer.Size,
    input_shape: tuple[int, ...],
    vocabulary: int,
    positions: int,
    recompute: bool,
) -> keras.Model:
    """A model of the token at each position of an item.

    Args:
        vocabulary: size of the vocabulary.
        positions: the most tokens of an item.
        recompute: whether activations of a block are computed again in the backward pass.
    """
    config = transformer.BlockConfig(
        *size, False, False, 1e-12, keras.activations.gelu, transformer.truncated
    )
    tokens = keras.Input(input_shape, dtype="int32")
    embedding = transformer.TokenEmbedding(vocabulary, size.width, config.initializer, name="words")
    x = transformer.Positions(positions, config.initializer, name="positions")(embedding(tokens))
    x = transformer.Segments(2, config.initializer, name="segments")(x)
    x = layers.LayerNormalization(epsilon=config.epsilon)(x)
    x = transformer.blocks(x, config, recompute)
    x = transformer.dense(size.width, config, activation=config.activation)(x)
    x = layers.LayerNormalization(epsilon=config.epsilon)(x)
    logits = transformer.Bias(name="logits")(embedding(x, reverse=True))
    return keras.Model(tokens, logits, name=name)
