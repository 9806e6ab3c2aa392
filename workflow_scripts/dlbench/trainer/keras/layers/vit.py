"""Vision transformers: patches as tokens, a class token, pre-norm blocks."""

import keras
from keras import layers

from dlbench.trainer.keras.layers import transformer


def network(
    name: str,
    size: transformer.Size,
    patch: int,
    input_shape: tuple[int, ...],
    classes: int,
    recompute: bool,
) -> keras.Model:
    """A classifier of images.

    Args:
        patch: side of a patch in pixels.
        recompute: whether activations of a block are computed again in the backward pass.

    Raises:
        ValueError: patches do not fill an image.
    """
    height, wide = input_shape[:2]
    if height % patch or wide % patch:
        raise ValueError(f"patches of {patch} pixels do not fill {height} x {wide}")
    config = transformer.BlockConfig(
        *size, False, True, 1e-6, keras.activations.gelu, transformer.truncated
    )
    images = keras.Input(input_shape)
    initializer = config.initializer()
    x = layers.Conv2D(size.width, patch, strides=patch, kernel_initializer=initializer)(images)
    tokens = (height // patch) * (wide // patch)
    x = layers.Reshape((tokens, size.width))(x)
    x = transformer.ClassToken(config.initializer, name="class")(x)
    x = transformer.Positions(tokens + 1, config.initializer, name="positions")(x)
    x = transformer.blocks(x, config, recompute)
    x = transformer.FirstToken()(layers.LayerNormalization(epsilon=config.epsilon)(x))
    return keras.Model(images, transformer.dense(classes, config)(x), name=name)
