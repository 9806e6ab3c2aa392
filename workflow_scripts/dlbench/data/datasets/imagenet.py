"""ImageNet, ILSVRC 2012: 1000 classes, from the archives of its authors.

- O. Russakovsky et al. (2015). ImageNet large scale visual recognition
  challenge. IJCV 115(3).
- Downloading the archives needs a login and accepted terms, so users stage them.
- The training archive is a tar of a thousand tars, one for each class. It is indexed by its headers
  and read in place.
- Labels are 1 .. 1000 in the alphabetical order of the synsets, as in tensorflow/models; 0 is
  unused. The development kit numbers the synsets in another order; its table maps its ground truth.
- JPEG bytes are kept. One PNG and 22 CMYK images, identified by their content, are re-encoded as
  RGB JPEG.
"""

import functools
import io
import os
from array import array
from pathlib import Path
from typing import Any

from dlbench.data import archives, pictures
from dlbench.data.archives import BLOCK, ArchiveError
from dlbench.data.datasets import Source

TITLE = "ImageNet ILSVRC 2012"
AUTHOR = "O. Russakovsky, J. Deng, H. Su et al."
DESCRIPTION = "1.28 million training and 50 000 validation photographs in 1000 classes"
KIND = "image"
LICENCE = "for non-commercial research and education, by the terms of image-net.org"
CITATION = (
    "O. Russakovsky, J. Deng, H. Su et al. (2015). ImageNet Large Scale Visual Recognition "
    "Challenge. International Journal of Computer Vision 115(3), 211-252."
)
HOMEPAGE = "https://image-net.org/download.php"
SYNTHETIC = False
TERMS = "https://image-net.org/download.php: log in, accept the terms and download the archives"
SPLITS = {"train": 1_281_167, "validation": 50_000}
SHARDS = {"train": 1024, "validation": 128}
CLASSES = 1000
READER = {
    "encoding": "jpeg",
    "classes": 1000,
    "first_label": 1,
    "augmentation": "crop_flip",
}
FILES = {
    "ILSVRC2012_img_train.tar": {
        "bytes": 147_897_477_120,
        "sha256": "b08200a27a8e34218a0e58fde36b0fe8f73bc377f4acea2d91602057c3ca45bb",
        "md5": "1d675b47d978889d74fa0da5fadfb00e",
        "urls": [],
    },
    "ILSVRC2012_img_val.tar": {
        "bytes": 6_744_924_160,
        "sha256": "c7e06a6c0baccf06d8dbeb6577d71efff84673a5dbdd50633ab44f8ea0456ae0",
        "md5": "29b22e2961454d5413ddabcf34fc5622",
        "urls": [],
    },
    "ILSVRC2012_devkit_t12.tar.gz": {
        "bytes": None,
        # The three SHA-256 as in torchvision (prototype/datasets/_builtin/imagenet.py).
        "sha256": "b59243268c0d266621fd587d2018f69e906fb22875aca0e295b48cafaa927953",
        "md5": "fa75699e90414af021442c21a62c3abf",
        "urls": [],
    },
}
# Archives that are mistaken for these; some public pages swap their MD5.
OTHERS = {
    "ILSVRC2012_img_train_t3.tar": "ccaf1013018ac1037801578038d370da",
    "ILSVRC2012_img_test.tar": "fe64ceb247e473635708aed23ab6d839",
    "ILSVRC2012_bbox_train_v2.tar.gz": "9271167e2176350e65cfe4e546f14b17",
}
KIT = "ILSVRC2012_devkit_t12/data/"
KIT_LIMIT_BYTES = 16 << 20


def open(folder: Path) -> Source:
    return ImageNet(folder)


class ImageNet:
    """Reads the two archives by means of an index with eight bytes for each image."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._synsets, self._texts, validation_synsets = _development_kit(
            folder / "ILSVRC2012_devkit_t12.tar.gz"
        )
        self._labels = {synset: label for label, synset in enumerate(self._synsets, start=1)}
        self._validation_synsets = validation_synsets
        self._paths = {
            "train": folder / "ILSVRC2012_img_train.tar",
            "validation": folder / "ILSVRC2012_img_val.tar",
        }
        self._headers = {"train": self._index_train(), "validation": self._index_validation()}

    def count(self, split: str) -> int:
        return len(self._headers[split])

    def location(self, split: str, index: int) -> str:
        return f"{self._paths[split]}, header at byte {self._headers[split][index]}"

    def features(self, split: str, index: int) -> dict[str, Any]:
        name, content = self._read(split, self._headers[split][index])
        if split == "train":
            synset = name.partition("_")[0]
        else:
            number = name.rpartition("_")[2].partition(".")[0]  # 00000001 of ..._00000001.JPEG
            synset = self._validation_synsets[int(number) - 1]
        content, height, width = pictures.as_jpeg(content, f"{self._paths[split]}: {name}")
        return {
            "image/encoded": content,
            "image/format": "JPEG",
            "image/colorspace": "RGB",
            "image/channels": 3,
            "image/height": height,
            "image/width": width,
            "image/filename": name,
            "image/class/label": self._labels[synset],
            "image/class/synset": synset,
            "image/class/text": self._texts[synset],
        }

    def _index_train(self):
        """Byte offsets of the headers of the training images."""
        path, headers, found_synsets = self._paths["train"], array("Q"), set()
        for name, offset, size in archives.tar_index(path):
            synset = name.removesuffix(".tar")
            if synset not in self._labels:
                raise ArchiveError(
                    f"{path}: {name} is none of the {len(self._labels)} classes' archives; "
                    "is this ILSVRC2012_img_train.tar?"
                )
            found_synsets.add(synset)
            for image, image_offset, _ in archives.tar_index(path, offset, offset + size):
                if image.partition("_")[0] != synset:
                    raise ArchiveError(f"{path}: {image} lies in {name}")
                headers.append(image_offset - BLOCK)
        missing = sorted(set(self._labels) - found_synsets)
        if missing:
            raise ArchiveError(
                f"{path}: {len(missing)} of {len(self._labels)} classes are missing, "
                f"{missing[0]} the first: the file is cut off"
            )
        return headers

    def _index_validation(self):
        """Byte offsets of the headers of the held-out images, in the order of their names."""
        path = self._paths["validation"]
        images = sorted((name, offset) for name, offset, _ in archives.tar_index(path))
        if len(images) != len(self._validation_synsets):
            raise ArchiveError(
                f"{path}: expected {len(self._validation_synsets)} images, as the development "
                f"kit has labels, found {len(images)}"
            )
        return array("Q", (offset - BLOCK for _, offset in images))

    def _read(self, split, header):
        file = _descriptor(self._paths[split])
        name, size_bytes, _ = archives.tar_header(os.pread(file, BLOCK, header))
        return name, os.pread(file, size_bytes, header + BLOCK)


@functools.lru_cache(maxsize=4)
def _descriptor(path):
    """An open file. Forked processes can share it, since pread has no position."""
    return os.open(path, os.O_RDONLY)


def _development_kit(path):
    """(synsets in alphabetical order, their texts, the synset of each validation image)."""
    import scipy.io

    meta = archives.small_member(path, KIT + "meta.mat", KIT_LIMIT_BYTES)
    truth = archives.small_member(
        path, KIT + "ILSVRC2012_validation_ground_truth.txt", KIT_LIMIT_BYTES
    )
    rows = scipy.io.loadmat(io.BytesIO(meta), squeeze_me=True, variable_names=["synsets"])
    by_id, texts = {}, {}
    for row in rows["synsets"]:
        if row["num_children"] == 0:  # rows with children are groups of classes
            by_id[int(row["ILSVRC2012_ID"])] = str(row["WNID"])
            texts[str(row["WNID"])] = str(row["words"])
    return sorted(texts), texts, [by_id[int(number)] for number in truth.split()]
