"""CIFAR-10: small colour images in ten classes, from the binary version of the archive."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dlbench.data.datasets import Source

TITLE = "CIFAR-10"
AUTHOR = "A. Krizhevsky, V. Nair, G. Hinton"
DESCRIPTION = "60 000 colour images, 32x32 pixels, ten classes"
KIND = "image"
LICENCE = "none stated by the authors"
CITATION = (
    "A. Krizhevsky (2009). Learning multiple layers of features from tiny images. "
    "Technical report, University of Toronto."
)
HOMEPAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
SYNTHETIC = False
TERMS = ""
SPLITS = {"train": 50_000, "validation": 10_000}
SHARDS = {"train": 8, "validation": 2}
READER = {
    "encoding": "raw",
    "shape": [32, 32, 3],
    "classes": 10,
    "first_label": 0,
    "augmentation": "shift_flip",
}
FILES = {
    "cifar-10-binary.tar.gz": {
        "bytes": 170_052_171,
        "sha256": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        "md5": "c32a1d4ab5d03f1284b67883e8d87530",
        "urls": ["https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"],
    }
}
MEMBERS = {
    "train": [f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)],
    "validation": ["cifar-10-batches-bin/test_batch.bin"],
}


def open(folder: Path) -> Source:
    return source(folder / "cifar-10-binary.tar.gz", MEMBERS, label_bytes=1, classes=10)


def source(
    path: Path, members: Mapping[str, Sequence[str]], label_bytes: int, classes: int
) -> Source:
    """Open an archive; `members` maps each split to the names of its files, in order.

    A record is its labels, one byte each (CIFAR-100: coarse, then fine), of which the last is used,
    and 3072 bytes of pixels: red, green, blue planes of 32 rows of 32.
    """
    import numpy as np

    from dlbench.data.archives import ArchiveError, tar_gz_members
    from dlbench.data.sources import ArraySource

    record_bytes = label_bytes + 3 * 32 * 32
    records = {
        name: SPLITS[split] // len(names) for split, names in members.items() for name in names
    }
    sizes = {name: count * record_bytes for name, count in records.items()}
    contents = dict(tar_gz_members(path, sizes))
    splits = {}
    for split, names in members.items():
        rows = np.frombuffer(b"".join(contents.pop(name) for name in names), np.uint8)
        rows = rows.reshape(-1, record_bytes)
        labels = rows[:, label_bytes - 1].astype(np.int64)
        if labels.max() >= classes:
            raise ArchiveError(f"{path}: label {labels.max()}, expected less than {classes}")
        images = rows[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        splits[split] = images, labels
    return ArraySource(splits)
