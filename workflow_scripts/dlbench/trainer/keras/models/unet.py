"""U-Net, for the overlap masks of RAMP Astro.

- O. Ronneberger, P. Fischer and T. Brox (2015). U-Net: convolutional networks
  for biomedical image segmentation. MICCAI, figure 1: two 3x3 convolutions a
  level, pooling by 2, transposed convolutions on the way up, shortcuts joined.
- Here with padding, so that masks have the size of their images, and with 16
  maps at the first of four levels below the full size, for images of 128x128.
- 1 940 817 parameters for 128x128x1 inputs.
"""

import keras
from keras import layers

TASK = "segmentation"
INPUT_SHAPE = (128, 128, 1)
CLASSES = 1
MAPS = (16, 32, 64, 128, 256)


def build(input_shape: tuple[int, ...], classes: int) -> keras.Model:
    inputs = keras.Input(input_shape)
    x, shortcuts = inputs, []
    for maps in MAPS[:-1]:
        x = _two_convolutions(x, maps)
        shortcuts.append(x)
        x = layers.MaxPooling2D(2)(x)
    x = _two_convolutions(x, MAPS[-1])
    for maps, shortcut in zip(MAPS[-2::-1], reversed(shortcuts), strict=True):
        x = layers.Conv2DTranspose(maps, 2, strides=2)(x)
        x = _two_convolutions(layers.Concatenate()([shortcut, x]), maps)
    return keras.Model(inputs, layers.Conv2D(classes, 1, name="logits")(x), name="unet")


def _two_convolutions(x, maps):
    for _ in range(2):
        x = layers.Conv2D(
            maps, 3, padding="same", activation="relu", kernel_initializer="he_normal"
        )(x)
    return x
