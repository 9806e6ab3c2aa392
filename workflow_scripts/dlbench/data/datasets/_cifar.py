"""Read the binary version of the archives of CIFAR-10 and CIFAR-100.

A record is its labels, one byte each (CIFAR-100: coarse, then fine), and 3072
bytes of pixels: red, green, blue planes of 32 rows of 32.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dlbench.data.archives import ArchiveError, tar_gz_members
from dlbench.data.sources import ArraySource

SPLITS = {"train": 50_000, "validation": 10_000}
PIXELS = 3 * 32 * 32


def source(
    path: Path, members: Mapping[str, Sequence[str]], label_bytes: int, classes: int
) -> ArraySource:
    """Open an archive.

    Args:
        members: maps each split to the names of its files, in order.
        label_bytes: number of label bytes before the pixels; the last one is used.
    """
    record_bytes = label_bytes + PIXELS
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
