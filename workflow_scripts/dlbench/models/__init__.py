"""Models, one file each, on Keras 3's backend-neutral layers.

A model file defines:
    INPUT_SHAPE: (height, width, channels) it was designed for; synthetic data has it.
    CLASSES: its number of classes in that design; synthetic labels have it.
    build(input_shape, classes): a keras.Model that returns logits.
Its docstring names the publication that it follows.
"""
