"""Generated blends of two galaxies with the mask of where they overlap: RAMP Astro's task.

- Each galaxy is an elliptical exponential disc (a Sersic profile with n = 1) of
  random size, shape, place and brightness, on Gaussian noise.
- A pixel belongs to a galaxy if its light exceeds twice the noise.
- Image number i depends on the seed and i alone, so that any process makes the same one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dlbench.data.datasets import Source

if TYPE_CHECKING:
    import numpy as np

TITLE = "Generated galaxy blends"
AUTHOR = "dlbench"
DESCRIPTION = "2 000 generated images of two blended discs, 128x128 pixels, with the overlap mask"
KIND = "mask"
LICENCE = "CC0"
CITATION = ""
HOMEPAGE = ""
SYNTHETIC = False
TERMS = ""
SPLITS = {"train": 1600, "validation": 400}
SHARDS = {"train": 4, "validation": 1}
READER = {"encoding": "raw", "dtype": "float32", "shape": [128, 128, 1], "mask": [128, 128, 1]}
FILES = {}
SEED = 2020
NOISE = 0.1


def open(folder: Path) -> Source:
    from dlbench.data.sources import ArraySource

    parts = {
        "train": _Blends(0, SPLITS["train"]),
        "validation": _Blends(SPLITS["train"], SPLITS["validation"]),
    }
    return ArraySource({split: (blends, blends.masks) for split, blends in parts.items()})


class _Blends:
    """The images or the masks from number `first` on, made when they are indexed."""

    def __init__(self, first, count, mask=False):
        self._first, self._count, self._mask = first, count, mask

    @property
    def masks(self):
        return _Blends(self._first, self._count, mask=True)

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        image, mask = blend(self._first + index)
        return mask if self._mask else image


def blend(number: int) -> tuple[np.ndarray, np.ndarray]:
    """One image (float32) and its mask (uint8), both of shape (128, 128, 1)."""
    import numpy as np

    random = np.random.default_rng((SEED, number))
    centre = random.uniform(48, 80, 2)
    first = _disc(random, centre)
    second = _disc(random, centre + random.uniform(-20, 20, 2))
    image = first + second + random.normal(0, NOISE, first.shape)
    mask = (first > 2 * NOISE) & (second > 2 * NOISE)
    return image.astype(np.float32)[..., None], mask.astype(np.uint8)[..., None]


def _disc(random, centre):
    import numpy as np

    y, x = np.mgrid[:128, :128] - centre[:, None, None]
    angle, flattening = random.uniform(0, np.pi), random.uniform(0.4, 1)
    scale = random.uniform(3, 9)
    along = x * np.cos(angle) + y * np.sin(angle)
    across = (y * np.cos(angle) - x * np.sin(angle)) / flattening
    return random.uniform(1, 5) * np.exp(-np.hypot(along, across) / scale)
