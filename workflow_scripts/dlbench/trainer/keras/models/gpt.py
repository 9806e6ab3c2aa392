"""GPT-2: embeddings of tokens and positions, pre-norm blocks, logits by the token embedding.

gpt2_small, the smallest that was published:
- A. Radford et al. (2019). Language models are unsupervised multitask learners. Section 2.3 and
  table 2; layers and sizes as in OpenAI's published weights: 12 blocks of width 768 with 12 heads,
  1024 positions, a vocabulary of 50 257 tokens, logits by the weights of the token embedding.
- Initial weights of the last layer of each branch are not scaled down; no dropout.
- 124 439 808 parameters: 38 597 376 of the token embedding, 786 432 of the positions, 7 087 872 of
  each block and 1 536 of the last normalisation.
gpt_tiny, so small that it learns bytes in seconds on two cores:
- 4 blocks of width 128 with 4 heads, 256 positions, a vocabulary of 256 tokens (bytes).
- 858 880 parameters: 32 768 of the token embedding, 32 768 of the positions, 198 272 of each block
  and 256 of the last normalisation.
"""

from typing import Any

import keras
from keras import layers

from dlbench.trainer.keras import transformer

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
) -> keras.Model:
    config = transformer.BlockConfig(
        **VARIANTS[name]["SIZE"],
        causal=True,
        norm_first=True,
        epsilon=1e-5,
        activation=transformer.gelu_tanh,
        initializer=transformer.normal,
    )
    tokens = keras.Input(input_shape, dtype="int32")
    embedding = transformer.TokenEmbedding(classes, config.width, config.initializer, name="words")
    positions = VARIANTS[name]["POSITIONS"]
    x = transformer.Positions(positions, config.initializer, name="positions")(embedding(tokens))
    x = transformer.blocks(x, config, recompute)
    x = layers.LayerNormalization(epsilon=config.epsilon)(x)
    return keras.Model(tokens, embedding(x, reverse=True), name=name)
