"""The user's pictures: each name under data.images in the config is a dataset of this file.

- Pictures lie in a folder with a folder for each class, or a CSV file lists them with their labels,
  or they are in larger files (dlbench/data/forms/).
- Without train/ and validation/, a share of each class is held out.
- READER here is that of pictures which stay as they are; the manifest has that of the dataset, with
  its number of classes, and the size to which `image_size` brings pictures.
"""

from pathlib import Path

from dlbench.data.datasets import Source

TITLE = "Pictures of your own"
AUTHOR = "who took them"
DESCRIPTION = (
    "folders of pictures, one for each class, or a CSV file with paths and labels; each name under "
    "`data.images` in the config is a dataset"
)
KIND = "image"
LICENCE = "that of the pictures"
CITATION = ""
HOMEPAGE = ""
SYNTHETIC = False
TERMS = ""
FROM_FOLDER = True  # of the user: nothing is downloaded
SPLITS = {"train": None, "validation": None}
SHARDS = {"train": 4, "validation": 4}  # and more for more than 5000 records each
READER = {"encoding": "jpeg", "first_label": 0, "augmentation": "crop_flip"}
FILES = {}


def open(folder: Path) -> Source:
    from dlbench.data import convert_pictures

    return convert_pictures.source({"path": str(folder)})
