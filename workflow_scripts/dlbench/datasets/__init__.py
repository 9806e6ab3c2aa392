"""Datasets, one file each. The file's name is the dataset's name in a config.

A dataset file defines:
    TITLE, LICENCE, CITATION: for people, and for what is published.
    SYNTHETIC: True where nothing is stored: the trainer makes the items.
and, where SYNTHETIC is False:
    IMAGE_SHAPE: (height, width, channels) of every item.
    CLASSES: labels are 0 .. CLASSES - 1.
    SPLITS: records in `train` and `validation`.
    SHARDS: TFRecord files in `train` and `validation`.
    FILES: maps each source file to its bytes and sha256.
    fetch(name, path): bring one source file to `path`.
    examples(folder): yield (split, image, label): uint8 array of IMAGE_SHAPE, int.
The file is read outside and inside the trainer's environment: whatever is not
in the standard library is imported inside the functions.
"""
