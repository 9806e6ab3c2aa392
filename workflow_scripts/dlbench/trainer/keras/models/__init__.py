"""Models on Keras 3's backend-neutral layers: one file each, or one for a family.

A model file defines:
    TASK: what it learns (see dlbench/trainer/tasks.py): classification, segmentation, language
        or masked_language.
    INPUT_SHAPE: the shape of one input it was designed for; synthetic data has it.
    CLASSES: its number of classes in that design (tokens, for language); synthetic labels
        have it. 1 for segmentation.
    POSITIONS (optional): the most tokens of an item of text.
    FIXED_CLASSES (optional): True if its vocabulary is CLASSES, whatever the data; of
        masked_language the last token is the mask.
    RECOMPUTES (optional): True if `build` takes `recompute`.
    build(input_shape, classes): a keras.Model that returns logits, of the shape
        (batch, classes) for classification, (batch, height, width, 1) for segmentation
        and (batch, tokens, classes) for language, masked or not. Losses that its layers add
        (Keras's add_loss) are minimised with that of its task, and not logged.
It is the model of its name. A file with VARIANTS is a family instead: that literal dictionary has
the name of each of its models, with the constants in which it differs. Its `build` takes
`constants` as well: all of the file's and the model's by their names, and NAME.
The docstring names the publication that a model follows, what deviates from it and the number of
parameters, which a test compares. Layers that families share lie in convolution.py above this
folder: a model's runs are trained again when a file that it imports changes.
"""
