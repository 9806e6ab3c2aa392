"""Handwritten digits that come with scikit-learn and need no network.

- 1797 images of 8x8 pixels in 17 grey levels, ten classes.
- Each pixel counts the ink in a 4x4 block of a 32x32 scan, so every image is
  enlarged fourfold here, back to the size of the scan and of LeNet-5's input.
- scikit-learn has only the test part of the UCI set. The held-out split is a fifth of it, drawn
  with a fixed seed, so the same writers occur in both splits. It shows whether training works;
  its accuracies cannot be compared with published ones.
"""

from pathlib import Path

from dlbench.data.datasets import Source

TITLE = "Optical recognition of handwritten digits"
AUTHOR = "E. Alpaydin, C. Kaynak"
DESCRIPTION = "1797 handwritten digits as 8x8 counts of ink, enlarged to 32x32 pixels"
KIND = "image"
LICENCE = "CC BY 4.0"
CITATION = (
    "E. Alpaydin and C. Kaynak (1998). Optical Recognition of Handwritten Digits. "
    "UCI Machine Learning Repository. https://doi.org/10.24432/C50P49"
)
HOMEPAGE = "https://doi.org/10.24432/C50P49"
SYNTHETIC = False
TERMS = ""
SPLITS = {"train": 1437, "validation": 360}
SHARDS = {"train": 4, "validation": 1}
READER = {"encoding": "raw", "shape": [32, 32, 1], "classes": 10, "first_label": 0}
FILES = {
    "digits.csv.gz": {
        "bytes": 57523,
        "sha256": "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
        "md5": None,
        "urls": ["package:sklearn.datasets.data/digits.csv.gz"],
    }
}


def open(folder: Path) -> Source:
    import gzip
    import random

    import numpy as np

    from dlbench.data.sources import ArraySource

    with gzip.open(folder / "digits.csv.gz", "rt", encoding="ascii") as file:
        rows = np.loadtxt(file, delimiter=",")
    grey = np.rint(rows[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    images = grey.repeat(4, axis=1).repeat(4, axis=2)
    labels = rows[:, -1].astype(np.int64)
    order = list(range(len(rows)))
    random.Random(1998).shuffle(order)
    held_out = SPLITS["validation"]
    parts = {"validation": order[:held_out], "train": order[held_out:]}
    return ArraySource({split: (images[part], labels[part]) for split, part in parts.items()})
