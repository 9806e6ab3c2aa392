"""NumPy files: an .npz with x_train, y_train, x_test and y_test, as keras.datasets has them.

- Or a folder with x_train.npy and so on; or one .npy of images, and `labels`, that of their labels.
- Files are mapped into memory, and never loaded whole. Objects (pickles) are refused.
- Items are stored as bytes: uint8 as it is, others with `value_range` scaled to 0 to 255. Without
  `value_range`, floats that are all from 0 to 1 are scaled, too.
"""

import math
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dlbench.common import own_code
from dlbench.common.progress import Progress
from dlbench.data import arrays
from dlbench.data.picture_index import (
    ALL,
    TRAIN,
    VALIDATION,
    Index,
    IndexingError,
    first,
    in_order,
    is_class,
)

CHANNELS = (1, 2, 3, 4)
AT_ONCE_BYTES = 1 << 26  # of an array whose values are checked
READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# In a ZIP file: where a member's header has the lengths of its name and of its extra field, and the
# flag of one that is encrypted. Source: APPNOTE.TXT of PKWARE, 4.3.7 and 4.4.4.
ZIP_LENGTHS, ENCRYPTED = 26, 1


@dataclass(frozen=True)
class ArrayIndex(Index):
    """Items that are arrays; their names are their rows.

    Attributes:
        images: (items, height, width, channels) of each split, mapped into memory.
        values: what becomes 0 and 255; None: stored as it is.
    """

    images: Mapping[str, Any] = field(default_factory=dict)
    values: tuple[float, float] | None = None


def files(given: Mapping[str, Any]) -> dict[str, list[Path]]:
    """The files; their names say which splits they have.

    Raises:
        IndexingError: there are none.
    """
    place = Path(given["numpy"])
    paths = [place, Path(given["labels"])] if "labels" in given else [place]
    if place.is_dir():
        paths = [path for pair in _pairs(place, _stems(place)).values() for path in pair]
        return {ALL: [place / f"{name}.npy" for name in paths]}
    for path in paths:
        if not path.is_file():
            hint = own_code.search_hint(path)
            raise IndexingError(
                f"{path}: expected a NumPy file or a folder of them, found none{hint}"
            )
    if ("labels" in given) != (place.suffix == ".npy"):
        raise IndexingError(
            f"{place}: expected an .npz with x_train, y_train, x_test and y_test, a folder with "
            "x_train.npy and so on, or an .npy of images with `labels`, that of their labels"
        )
    return {ALL: paths}


def index(given: Mapping[str, Any], place: Path | None = None) -> Index:
    """The items by their classes.

    Raises:
        IndexingError: an array has another shape or dtype, or labels are no classes.
    """
    files(given)
    found = _arrays(given, place)
    splits, images = {}, {}
    for part, ((x_name, x), (y_name, y)) in found.items():
        images[part] = _images(x, x_name)
        splits[part] = _classes(y, y_name)
        if len(x) != len(y):
            raise IndexingError(
                f"{x_name} has {len(x)} items, but {y_name} has {len(y)} labels: expected one each"
            )
    kinds = {(str(x.dtype), x.shape[1:]) for x in images.values()}
    if len(kinds) > 1:
        shown = " and ".join(f"{shape} of {dtype}" for dtype, shape in sorted(kinds))
        raise IndexingError(f"{given['numpy']}: expected items of one shape, found {shown}")
    folder = Path(given["numpy"])
    try:
        values = _values(images, given.get("value_range")) if place else None
    except IndexingError as error:
        raise IndexingError(f"{folder}: {error}") from error
    return ArrayIndex(folder, splits, images=images, values=values)


class Arrays:
    """A Source of the items of an ArrayIndex.

    Args:
        splits: {split: (row, number of its class)}, from picture_index.split.
    """

    def __init__(self, found: ArrayIndex, splits: Mapping[str, list[tuple[str, int]]]) -> None:
        self._index, self._splits = found, splits

    @property
    def shape(self) -> list[int]:
        """(height, width, channels) of an item."""
        return list(next(iter(self._index.images.values())).shape[1:])

    def count(self, split: str) -> int:
        return len(self._splits[split])

    def location(self, split: str, index: int) -> str:
        return f"{self._index.folder}: {split}, item {self._splits[split][index][0]}"

    def features(self, split: str, index: int) -> dict[str, Any]:
        row, label = self._splits[split][index]
        image = self._index.images[ALL if ALL in self._index.images else split][int(row)]
        if self._index.values:
            image = arrays.as_bytes(image[None], *self._index.values)[0]
        height, width, channels = image.shape
        return {
            "image/encoded": image.tobytes(),
            "image/format": "RAW",
            "image/height": height,
            "image/width": width,
            "image/channels": channels,
            "image/class/label": label,
            "image/class/text": self._index.classes[label],
        }


def source(index: ArrayIndex, splits: Mapping[str, list[tuple[str, int]]]) -> Arrays:
    """The items, as the Source of a conversion."""
    return Arrays(index, splits)


def _stems(folder):
    return {path.stem for path in folder.glob("*.npy")}


def _pairs(where, names):
    """{split: the names of its arrays of images and of labels}, of those that there are."""
    known = [name for name in (TRAIN, *VALIDATION) if f"x_{name}" in names]
    if TRAIN not in known:
        raise IndexingError(
            f"{where}: expected x_train, y_train, x_test and y_test, found no x_train; there are: "
            f"{first(sorted(names)) or 'no arrays'}"
        )
    parts = {TRAIN: TRAIN, VALIDATION[0]: known[1]} if len(known) > 1 else {ALL: TRAIN}
    if without := [name for name in parts.values() if f"y_{name}" not in names]:
        raise IndexingError(
            f"{where}: expected labels beside x_{without[0]}, found no y_{without[0]}"
        )
    return {part: (f"x_{name}", f"y_{name}") for part, name in parts.items()}


def _arrays(given, place):
    """{split: ((name, images), (name, labels))}."""
    path = Path(given["numpy"])
    if path.suffix == ".npy":
        pair = (path, Path(given["labels"]))
        return {ALL: [(str(one), _mapped(one, str(one))) for one in pair]}
    if path.is_dir():
        pairs = _pairs(path, _stems(path))
        opened = {name: path / f"{name}.npy" for pair in pairs.values() for name in pair}
        mapped = {name: _mapped(one, str(one)) for name, one in opened.items()}
    else:
        try:
            with zipfile.ZipFile(path) as archive:
                pairs = _pairs(path, {name.removesuffix(".npy") for name in archive.namelist()})
                wanted = [name for pair in pairs.values() for name in pair]
                mapped = {name: _of_archive(path, archive, name, place) for name in wanted}
        except (zipfile.BadZipFile, OSError, EOFError) as error:
            raise IndexingError(f"{path}: expected a complete .npz file: {error}") from error
    return {
        part: [(f"{path}: {name}", mapped[name]) for name in pair] for part, pair in pairs.items()
    }


def _of_archive(path, archive, name, place):
    """An array of an .npz: mapped where it is if it is not compressed, else unpacked to `place`."""
    member, where = archive.getinfo(f"{name}.npy"), f"{path}: {name}"
    if member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & ENCRYPTED:
        with open(path, "rb") as file:
            file.seek(member.header_offset + ZIP_LENGTHS)
            start = file.tell() + 4 + sum(struct.unpack("<HH", file.read(4)))
        return _mapped(path, where, start, start + member.file_size)
    if place is None and name.startswith("x"):  # only its shape is needed
        with archive.open(member) as file:
            shape, _, dtype = _header(file, where)
        return np.broadcast_to(np.zeros((), dtype), shape)
    if place is None:
        with archive.open(member) as file:
            _header(file, where)
        with archive.open(member) as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    return _mapped(Path(archive.extract(member, place)), where)


def _mapped(path, where, start=0, end=None):
    """The array from byte `start` of a file on."""
    end = path.stat().st_size if end is None else end
    with open(path, "rb") as file:
        file.seek(start)
        shape, fortran, dtype = _header(file, where)
        offset = file.tell()
    size_bytes = math.prod(shape) * dtype.itemsize
    if offset + size_bytes > end:
        raise IndexingError(
            f"{where}: expected {size_bytes} bytes of values, found {max(0, end - offset)}: the "
            "file is cut off"
        )
    if not size_bytes:
        raise IndexingError(f"{where}: expected items, found none: its shape is {shape}")
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")


def _header(file, where):
    """(shape, whether in Fortran's order, dtype) of an array.

    Source: numpy.lib.format.
    """
    try:
        version = np.lib.format.read_magic(file)
        shape, fortran, dtype = READERS[version](file)
    except (ValueError, KeyError) as error:
        raise IndexingError(
            f"{where}: expected an array as numpy.save writes it: {error}; pickles are not read, "
            "since they can run code"
        ) from error
    if dtype.hasobject:
        raise IndexingError(
            f"{where}: expected numbers, found objects, which NumPy stores as a pickle; pickles "
            "are not read, since they can run code: save an array of one shape and dtype"
        )
    return shape, fortran, dtype


def _images(array, where):
    """An array as (items, height, width, channels)."""
    if array.dtype.kind not in "buif":
        raise IndexingError(f"{where}: expected numbers, found the dtype {array.dtype}")
    if array.ndim == 3:
        return array[..., None]
    if array.ndim == 4 and array.shape[-1] in CHANNELS:
        return array
    if array.ndim == 4 and array.shape[1] in CHANNELS:  # as PyTorch has them
        return array.transpose(0, 2, 3, 1)
    raise IndexingError(
        f"{where}: expected images of the shape (items, height, width), (items, height, width, "
        f"channels) or (items, channels, height, width), found {array.shape}"
    )


def _classes(labels, where):
    """{class: its rows, as texts}."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        hint = ": if they are one-hot, y.argmax(axis=1) is the class" if labels.ndim == 2 else ""
        raise IndexingError(f"{where}: expected one label an item, found {labels.shape}{hint}")
    if labels.dtype.kind == "f":
        wrong = np.flatnonzero(~np.isfinite(labels) | (labels % 1 != 0))
        if len(wrong):
            raise IndexingError(
                f"{where}: expected classes, which are whole numbers or names, found "
                f"{labels[wrong[0]]} as label {wrong[0]} (counted from 0), and {len(wrong)} such"
            )
    if labels.dtype.kind in "bf":
        labels = labels.astype(np.int64)
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8", "replace")
    if labels.dtype.kind not in "iuU":
        raise IndexingError(f"{where}: expected classes, found the dtype {labels.dtype}")
    values, numbers = np.unique(labels, return_inverse=True)
    if wrong := [str(value) for value in values if not is_class(str(value))]:
        raise IndexingError(
            f"{where}: expected classes, which are whole numbers from 0 on or names, found "
            f"{first(wrong)}"
        )
    ends = np.cumsum(np.bincount(numbers))[:-1]
    rows = np.split(np.argsort(numbers, kind="stable"), ends)
    by_class = {str(value): these for value, these in zip(values, rows, strict=True)}
    return {label: [str(row) for row in by_class[label]] for label in in_order(by_class)}


def _values(images, given):
    """What becomes 0 and 255, after a check of all values; None: values stay as they are."""
    if all(array.dtype == np.uint8 for array in images.values()) and given is None:
        return None
    lowest, highest = math.inf, -math.inf
    for part, array in images.items():
        rows = max(1, AT_ONCE_BYTES // max(1, array[0].nbytes))
        progress = Progress("checking values of arrays", len(array))
        for start in range(0, len(array), rows):
            some = array[start : start + rows]
            if some.dtype.kind == "f" and not np.isfinite(some).all():
                wrong = np.flatnonzero(~np.isfinite(some).all(axis=(1, 2, 3)))
                raise IndexingError(
                    f"{part or 'x'}: expected finite numbers, found NaN or infinity in item "
                    f"{start + wrong[0]} (counted from 0)"
                )
            lowest, highest = min(lowest, some.min()), max(highest, some.max())
            progress.add(len(some))
    kind = next(iter(images.values())).dtype.kind
    in_unit = kind == "b" or (kind == "f" and lowest >= 0 and highest <= 1)
    low, high = given or ((0, 1) if in_unit else (0, 255))
    if lowest < low or highest > high or low >= high:
        raise IndexingError(
            f"expected values from {low:g} to {high:g}, found {lowest:g} to {highest:g}: say with "
            "value_range: [low, high] which values become 0 and 255"
        )
    return low, high
