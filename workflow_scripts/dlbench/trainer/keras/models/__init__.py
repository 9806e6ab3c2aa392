"""Models, one file each, on Keras 3's backend-neutral layers.

Each lies in the folder of its sort: convolutional, residual, recurrent or transformers. A model of
another sort may lie here, or in a new folder; names are unique over all of them.

A model file defines:
    TASK: what it learns (see dlbench/trainer/tasks/): classification, segmentation, language
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
        and (batch, tokens, classes) for language, masked or not.
Its docstring names the publication that it follows, what deviates from it and the
number of parameters, which a test compares. Shared parts lie in dlbench/trainer/keras/layers/.
"""
