"""CIFAR-100: small colour images in a hundred classes, from the binary version of the archive.

The fine labels are used; the twenty coarse ones are left out.
"""

from pathlib import Path

from dlbench.data.datasets import Source, cifar10

TITLE = "CIFAR-100"
AUTHOR = cifar10.AUTHOR
DESCRIPTION = "60 000 colour images, 32x32 pixels, a hundred classes"
KIND = "image"
LICENCE = "none stated by the authors"
CITATION = cifar10.CITATION
HOMEPAGE = cifar10.HOMEPAGE
SYNTHETIC = False
TERMS = ""
SPLITS = {"train": 50_000, "validation": 10_000}
SHARDS = {"train": 8, "validation": 2}
READER = {
    "encoding": "raw",
    "shape": [32, 32, 3],
    "classes": 100,
    "first_label": 0,
    "augmentation": "shift_flip",
}
FILES = {
    "cifar-100-binary.tar.gz": {
        "bytes": 168_513_733,
        "sha256": "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        "md5": "03b5dce01913d631647c71ecec9e9cb8",
        "urls": ["https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"],
    }
}
MEMBERS = {
    "train": ["cifar-100-binary/train.bin"],
    "validation": ["cifar-100-binary/test.bin"],
}


def open(folder: Path) -> Source:
    return cifar10.source(folder / "cifar-100-binary.tar.gz", MEMBERS, label_bytes=2, classes=100)
