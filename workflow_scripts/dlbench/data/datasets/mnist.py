"""MNIST: handwritten digits, in the IDX files of its authors.

- Y. LeCun, L. Bottou, Y. Bengio and P. Haffner (1998). Gradient-based learning
  applied to document recognition. Proceedings of the IEEE 86(11).
- IDX: magic 0x0803 (images) or 0x0801 (labels), then the axes' lengths, all
  big-endian u32, then bytes.
"""

from pathlib import Path

from dlbench.data.datasets import Source

TITLE = "MNIST"
AUTHOR = "Y. LeCun, C. Cortes, C. J. C. Burges"
DESCRIPTION = "70 000 handwritten digits, 28x28 pixels, ten classes"
KIND = "image"
LICENCE = "CC BY-SA 3.0"
CITATION = (
    "Y. LeCun, L. Bottou, Y. Bengio and P. Haffner (1998). Gradient-based learning applied to "
    "document recognition. Proceedings of the IEEE 86(11), 2278-2324."
)
HOMEPAGE = "https://github.com/cvdfoundation/mnist"
SYNTHETIC = False
TERMS = ""
SPLITS = {"train": 60_000, "validation": 10_000}
SHARDS = {"train": 8, "validation": 2}
READER = {"encoding": "raw", "shape": [28, 28, 1], "classes": 10, "first_label": 0}
MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)


def _file(name, size_bytes, sha256, md5):
    urls = [mirror + name for mirror in MIRRORS]
    return {name: {"bytes": size_bytes, "sha256": sha256, "md5": md5, "urls": urls}}


FILES = {
    **_file(
        "train-images-idx3-ubyte.gz",
        9_912_422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    ),
    **_file(
        "train-labels-idx1-ubyte.gz",
        28_881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "d53e105ee54ea40749a09fcbcd1e9432",
    ),
    **_file(
        "t10k-images-idx3-ubyte.gz",
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "9fb629c4189551a2d022fa330f9573f3",
    ),
    **_file(
        "t10k-labels-idx1-ubyte.gz",
        4_542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
}
PREFIX = {"train": "train", "validation": "t10k"}


def open(folder: Path) -> Source:
    from dlbench.data.sources import ArraySource

    return ArraySource(
        {
            split: (
                _idx(folder / f"{prefix}-images-idx3-ubyte.gz", (SPLITS[split], 28, 28, 1)),
                _idx(folder / f"{prefix}-labels-idx1-ubyte.gz", (SPLITS[split],)),
            )
            for split, prefix in PREFIX.items()
        }
    )


def _idx(path, shape):
    """The array of one IDX file, which must have this shape without its last axis of 1."""
    import struct

    import numpy as np

    from dlbench.data.archives import gunzipped

    axes = shape[:3]
    header = struct.pack(f">I{len(axes)}I", 0x0800 + len(axes), *axes)
    content = gunzipped(path, len(header) + int(np.prod(shape)), start=header)
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)
