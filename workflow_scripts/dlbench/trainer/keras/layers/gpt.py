"""GPT-2: embeddings of tokens and positions, pre-norm blocks, logits by the token embedding."""

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
    """A model of the next token at each position of an item.

    Args:
        vocabulary: size of the vocabulary.
        positions: the most tokens of an item.
        recompute: whether activations of a block are computed again in the backward pass.
    """
    config = transformer.BlockConfig(
        *size, True, True, 1e-5, transformer.gelu_tanh, transformer.normal
    )
    tokens = keras.Input(input_shape, dtype="int32")
    embedding = transformer.TokenEmbedding(vocabulary, size.width, config.initializer, name="words")
    x = transformer.Positions(positions, config.initializer, name="positions")(embedding(tokens))
    x = transformer.blocks(x, config, recompute)
    x = layers.LayerNormalization(epsilon=config.epsilon)(x)
    return keras.Model(tokens, embedding(x, reverse=True), name=name)
