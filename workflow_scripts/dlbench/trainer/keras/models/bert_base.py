"""BERT base, with the head that learns masked tokens.

- J. Devlin et al. (2019). BERT. NAACL, arXiv:1810.04805, section 3 and appendix A; sizes as in
  Google's published uncased weights: 12 blocks of width 768 with 12 heads, 512 positions, a
  vocabulary of 30 522 tokens, two segments; here all tokens are in the first one.
- It learns masked tokens, not the next sentence, so it has no pooler. Logits are computed at all
  positions, as in Hugging Face's BertForMaskedLM. The mask is the last token of the vocabulary.
- No dropout.
- 109 514 298 parameters, as BertForMaskedLM: 23 440 896 of the token embedding, 393 216 of the
  positions, 1 536 of the segments, 1 536 of their normalisation, 7 087 872 of each block, and in
  the head 592 128 of the dense layer and its normalisation and 30 522 biases. With the pooler
  (590 592) instead of the head they are the published 109 482 240.
"""

import keras
from keras import layers

from dlbench.trainer.keras import transformer

TASK = "masked_language"
INPUT_SHAPE = (512,)
CLASSES = 30_522
FIXED_CLASSES = True
POSITIONS = 512
RECOMPUTES = True
SIZE = {"width": 768, "heads": 12, "depth": 12}


def build(input_shape: tuple[int, ...], classes: int, recompute: bool = False) -> keras.Model:
    config = transformer.BlockConfig(
        **SIZE,
        causal=False,
        norm_first=False,
        epsilon=1e-12,
        activation=keras.activations.gelu,
        initializer=transformer.truncated,
    )
    tokens = keras.Input(input_shape, dtype="int32")
    embedding = transformer.TokenEmbedding(classes, config.width, config.initializer, name="words")
    x = transformer.Positions(POSITIONS, config.initializer, name="positions")(embedding(tokens))
    x = transformer.Segments(2, config.initializer, name="segments")(x)
    x = layers.LayerNormalization(epsilon=config.epsilon)(x)
    x = transformer.blocks(x, config, recompute)
    x = transformer.dense(config.width, config, activation=config.activation)(x)
    x = layers.LayerNormalization(epsilon=config.epsilon)(x)
    logits = transformer.Bias(name="logits")(embedding(x, reverse=True))
    return keras.Model(tokens, logits, name="bert_base")
