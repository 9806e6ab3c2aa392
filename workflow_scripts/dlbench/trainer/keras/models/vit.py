"""Vision transformers: patches as tokens, a class token, pre-norm blocks.

vit_b16, ViT-B/16:
- A. Dosovitskiy et al. (2021). An image is worth 16x16 words. ICLR, arXiv:2010.11929, table 1 and
  section 3.1; one dense layer as the head, as there when it is fine-tuned, and in torchvision.
- No dropout; initial weights, the head's too, from a truncated normal distribution of standard
  deviation 0.02.
- 86 567 656 parameters for 224x224x3 and 1000 classes: 590 592 of the patches, 768 of the class
  token, 151 296 of the positions, 7 087 872 of each of 12 blocks, 1 536 of the last normalisation
  and 769 000 of the head.
vit_tiny, so small that it trains in seconds on two cores; not DeiT's Ti/16:
- 4 blocks of width 64 with 4 heads on patches of 4 x 4 pixels of small images.
- 208 074 parameters for 32x32x3 and ten classes: 3 136 of the patches, 64 of the class token,
  4 160 of the positions, 49 984 of each block, 128 of the last normalisation and 650 of the head.
"""

from typing import Any

import keras
from keras import layers

from dlbench.trainer.keras import transformer

VARIANTS: dict[str, Any] = {
    "vit_b16": {
        "INPUT_SHAPE": (224, 224, 3),
        "CLASSES": 1000,
        "PATCH": 16,  # side in pixels
        "SIZE": {"width": 768, "heads": 12, "depth": 12},
    },
    "vit_tiny": {
        "INPUT_SHAPE": (32, 32, 3),
        "CLASSES": 10,
        "PATCH": 4,
        "SIZE": {"width": 64, "heads": 4, "depth": 4},
    },
}
TASK = "classification"
RECOMPUTES = True


def build(
    input_shape: tuple[int, ...], classes: int, name: str, recompute: bool = False
) -> keras.Model:
    (height, wide), patch = input_shape[:2], VARIANTS[name]["PATCH"]
    if height % patch or wide % patch:
        raise ValueError(f"patches of {patch} pixels do not fill {height} x {wide}")
    config = transformer.BlockConfig(
        **VARIANTS[name]["SIZE"],
        causal=False,
        norm_first=True,
        epsilon=1e-6,
        activation=keras.activations.gelu,
        initializer=transformer.truncated,
    )
    images = keras.Input(input_shape)
    initializer = config.initializer()
    x = layers.Conv2D(config.width, patch, strides=patch, kernel_initializer=initializer)(images)
    tokens = (height // patch) * (wide // patch)
    x = layers.Reshape((tokens, config.width))(x)
    x = transformer.ClassToken(config.initializer, name="class")(x)
    x = transformer.Positions(tokens + 1, config.initializer, name="positions")(x)
    x = transformer.blocks(x, config, recompute)
    x = transformer.FirstToken()(layers.LayerNormalization(epsilon=config.epsilon)(x))
    return keras.Model(images, transformer.dense(classes, config)(x), name=name)
