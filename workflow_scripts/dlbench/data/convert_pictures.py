"""Convert a user's pictures (data.images in the config) to TFRecord shards with a manifest.

- Every picture is decoded once before shards are written. Those that do not decode are listed in
  unreadable.txt beside the manifest, and left out up to the share `max_unreadable`.
- Pictures are turned upright as their EXIF data say. Upright JPEGs in grey or RGB stay as they are,
  other pictures are encoded as JPEG: the trainer decodes, crops and resizes them at each step.
- With `image_size` each is cropped at its centre to that ratio, resized, and stored as an array.
"""

import dataclasses
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dlbench import Error
from dlbench.common import plugins
from dlbench.common.files import atomic_write
from dlbench.common.terminal import Progress
from dlbench.data import convert_dataset, own_pictures, picture_index, pictures
from dlbench.data.own_pictures import Settings
from dlbench.data.picture_index import Index

UNREADABLE = "unreadable.txt"
UNPACKED = ".unpacked-"  # a folder beside the shards, while they are written
RECORDS_PER_SHARD = 5000
CHUNK = 64  # pictures that a process is given at a time


class UnreadablePictures(Error):
    """More pictures than allowed do not decode; the message names the first."""


def convert(name: str, given: Mapping[str, Any], output: Path, workers: int | None = None) -> None:
    """Write the shards of dataset `name` and their manifest, from the pictures as they are now.

    `given`: what data.images.NAME says in the config; `workers`: number of processes, by default
    one for each core. Raises IndexingError: pictures or their classes are not as expected;
    UnreadablePictures: too many do not decode.
    """
    settings = Settings(**given)
    output.mkdir(parents=True, exist_ok=True)
    # Before the pictures are decoded: if one changes meanwhile, the next start finds it.
    of_content = own_pictures.of_content(name, settings, output)
    workers = workers or len(os.sched_getaffinity(0))
    for left in output.glob(f"{UNPACKED}*"):  # of a conversion that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=UNPACKED, dir=output) as place:
        index = settings.index(Path(place))
        unreadable = _unreadable(name, index, settings, workers)
        _report(name, settings, index, unreadable, output)
        records = _source(settings, _without(index, unreadable))
        kept = {key: v for key, v in given.items() if key not in own_pictures.PLACES}
        recipe = {
            "code_sha256": own_pictures.digest(settings, of_content),
            "seed": convert_dataset.SEED,
            "check": "header",
            "source": {"pictures": of_content, "settings": kept},
        }
        further = {
            "class_names": [_text(label) for label in index.classes],
            "unreadable": len(unreadable),
        }
        dataset = _dataset(settings, index, records)
        convert_dataset.write(name, dataset, records, output, recipe, workers, further)


def source(given: Mapping[str, Any]) -> "Pictures":
    """The records of a folder of pictures that data.images.NAME says."""
    settings = Settings(**given)
    return _source(settings, settings.index())


class Pictures:
    """A Source of pictures: {split: (name, number of its class)}.

    `size`: (height, width) of arrays; None: JPEGs of the pictures' own sizes.
    """

    def __init__(
        self,
        index: Index,
        splits: Mapping[str, list[tuple[str, int]]],
        size: tuple[int, int] | None,
    ) -> None:
        self._index, self._splits, self._size = index, splits, size

    def count(self, split: str) -> int:
        return len(self._splits[split])

    def location(self, split: str, index: int) -> str:
        return f"{self._index.folder}: {_text(self._splits[split][index][0])}"

    def features(self, split: str, index: int) -> dict[str, Any]:
        name, label = self._splits[split][index]
        content = self._index.read(name)
        encoded, height, width = as_stored(content, self._size, self.location(split, index))
        return {
            "image/encoded": encoded,
            "image/format": "RAW" if self._size else "JPEG",
            "image/height": height,
            "image/width": width,
            "image/filename": _text(name),
            "image/class/label": label,
            "image/class/text": _text(self._index.classes[label]),
        }


def as_stored(content: bytes, size: tuple[int, int] | None, where: str) -> tuple[bytes, int, int]:
    """(what is stored of a picture, height, width): an array of uint8 in RGB of a size, or a JPEG.

    `size`: (height, width) of the array; None: a JPEG, which is `content` itself if that is an
    upright one in grey or RGB. Raises PictureError: it does not decode.
    """
    if size is None and content.startswith(pictures.START):
        height, width, components = pictures.jpeg_header(content, where)
        if components != 4 and pictures.orientation(content, where) == 1:
            return content, height, width
    image = pictures.upright(content, where)
    if size is None:
        return pictures.jpeg(image), image.height, image.width
    from PIL import ImageOps

    height, width = size
    return ImageOps.fit(image, (width, height)).tobytes(), height, width


def _source(settings, index):
    splits = picture_index.split(index, settings.validation_share, settings.seed)
    return Pictures(index, splits, settings.image_size)


def _dataset(settings, index, records):
    """What a dataset's file defines: images.py, with SHARDS and READER of these pictures."""
    images = plugins.load("datasets", "images")  # imported here: it imports this module
    classes = len(index.classes)
    if settings.image_size:
        shape = [*settings.image_size, 3]
        reader = {"encoding": "raw", "shape": shape, "classes": classes, "first_label": 0}
    else:
        reader = images.READER | {"classes": classes}
    counts = {part: records.count(part) for part in images.SPLITS}
    shards = {
        part: min(count, images.SHARDS[part] + count // RECORDS_PER_SHARD)
        for part, count in counts.items()
    }
    return SimpleNamespace(**{**vars(images), "READER": reader, "SHARDS": shards})


_index: Index  # of this conversion, inherited by forked workers


def _unreadable(name, index, settings, workers):
    """{name: reason} of the pictures that do not decode; all are decoded."""
    global _index
    _index, names = index, index.names
    reason = functools.partial(_reason, settings.image_size)
    progress, unreadable = Progress(f"{name}: decoding pictures", len(names)), {}
    with convert_dataset.forked(workers, len(names) // CHUNK) as mapped:
        chunks = {} if mapped is map else {"chunksize": CHUNK}
        for picture, why in zip(names, mapped(reason, names, **chunks), strict=True):
            progress.add()
            if why:
                unreadable[picture] = why
    return unreadable


def _reason(size, name):
    """Why a picture cannot be stored; None if it can."""
    where = _text(name)
    try:
        content = _index.read(name)
        encoded, _, _ = as_stored(content, size, where)
        if encoded is content:
            pictures.decode(content, where)
    except OSError as error:
        return error.strerror
    except pictures.PictureError as error:
        return str(error).removeprefix(where).lstrip(": ")
    return None


def _report(name, settings, index, unreadable, output):
    """List unreadable pictures in a file. Raises UnreadablePictures: they are more than allowed."""
    listed = output / UNREADABLE
    listed.unlink(missing_ok=True)
    if not unreadable:
        return
    lines = [f"{_text(picture)}: {why}\n" for picture, why in unreadable.items()]
    with atomic_write(listed) as part:
        part.write_text("".join(lines), encoding="utf-8")
    count = len(index.names)
    share = len(unreadable) / count
    first = [f"{_text(picture)} ({why})" for picture, why in unreadable.items()]
    message = (
        f"{name}: {len(unreadable)} of {count} pictures below {index.folder} cannot be read: "
        f"{picture_index.first(first)}; all are listed in {listed}"
    )
    if share > settings.max_unreadable:
        raise UnreadablePictures(
            f"{message}. Take them out, or allow their share: max_unreadable of data.images.{name} "
            f"is {settings.max_unreadable:g}, and they are {share:.2g}"
        )
    print(f"{message}. They are left out", file=sys.stderr)


def _without(index, unreadable):
    """An Index without the pictures that cannot be read."""
    splits = {
        part: {
            label: [name for name in names if name not in unreadable]
            for label, names in classes.items()
        }
        for part, classes in index.splits.items()
    }
    return dataclasses.replace(index, splits=splits)


def _text(name):
    """A name of a file as text in UTF-8, without characters that control a terminal."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return text if text.isprintable() else ascii(text)[1:-1]
