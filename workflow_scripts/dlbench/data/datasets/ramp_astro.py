"""RAMP Astro: blended galaxies and the mask of where they overlap, as NumPy files.

- A. Boucaud et al. (2020). Photometry of high-redshift blended galaxies using
  deep learning. MNRAS 491(2).
- The first 12 000 images of the published training part train, the last 4 000 are held out. The
  published test part is not used.
- Neither size nor digest is published. The first download is trusted and its SHA-256 pinned
  (source.json, the manifest): compare it with that of other users.
"""

from pathlib import Path

from dlbench.data.datasets import Source

TITLE = "RAMP Astro: galaxy deblending"
AUTHOR = "A. Boucaud et al."
DESCRIPTION = "16 000 images of two blended galaxies, 128x128 pixels, with the overlap as a mask"
KIND = "mask"
LICENCE = "none stated by the authors"
CITATION = (
    "A. Boucaud, M. Huertas-Company, C. Heneka et al. (2020). Photometry of high-redshift blended "
    "galaxies using deep learning. MNRAS 491(2), 2481-2495. https://doi.org/10.1093/mnras/stz3056"
)
HOMEPAGE = "https://github.com/ramp-kits/astrophd_tutorial"
SYNTHETIC = False
TERMS = ""
SPLITS = {"train": 12_000, "validation": 4_000}
SHARDS = {"train": 16, "validation": 4}
READER = {"encoding": "raw", "dtype": "float32", "shape": [128, 128, 1], "mask": [128, 128, 1]}
FILES = {
    name: {
        "bytes": None,
        "sha256": None,
        "md5": None,
        "urls": [f"https://storage.ramp.studio/astrophd_tutorial/{name}"],
    }
    for name in ("data_train.npy", "labels_train.npy")
}


def open(folder: Path) -> Source:
    import numpy as np

    from dlbench.data.sources import ArraySource

    # Mapped, not read into memory; without pickles, which could run code.
    images, masks = (np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in FILES)
    total = sum(SPLITS.values())
    for name, array in zip(FILES, (images, masks), strict=True):
        if array.shape[:3] != (total, 128, 128):
            from dlbench import Error

            raise Error(
                f"{folder / name}: expected an array of {total} x 128 x 128, found "
                f"{' x '.join(map(str, array.shape))}"
            )
    return ArraySource(
        {
            "train": (_Images(images, 0, "float32"), _Images(masks, 0, "uint8")),
            "validation": (
                _Images(images, SPLITS["train"], "float32"),
                _Images(masks, SPLITS["train"], "uint8"),
            ),
        }
    )


class _Images:
    """A split of a mapped array, whose images are read one by one, in one type, one channel."""

    def __init__(self, array, first, dtype):
        self._array, self._first, self._dtype = array, first, dtype
        self._count = SPLITS["validation" if first else "train"]

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        return self._array[self._first + index].reshape(128, 128, 1).astype(self._dtype)
