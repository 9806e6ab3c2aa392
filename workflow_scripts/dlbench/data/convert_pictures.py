"""Convert a user's pictures (data.images in the config) to TFRecord shards with a manifest.

- Every picture is decoded once before shards are written. Those that do not decode are listed in
  unreadable.txt beside the manifest, and left out up to the share `max_unreadable`.
- Pictures are turned upright as their EXIF data say. Upright JPEGs in grey or RGB stay as they are,
  other pictures are encoded as JPEG: the trainer decodes, crops and resizes them at each step.
- With `image_size` each is cropped at its centre to that ratio, resized, and stored as an array.
"""

import concurrent.futures
import functools
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from dlbench import Error
from dlbench.common import orphans, own_code, plugins
from dlbench.common.files import atomic_write, json_digest, read_json, write_json
from dlbench.data import convert_dataset, picture_index, pictures
from dlbench.trainer.reading import manifest

NOTED = "index.json"  # digests of the pictures' contents, beside the manifest
UNREADABLE = "unreadable.txt"
RECORDS_PER_SHARD = 5000
PLACES = ("path", "csv")  # of the settings: others need not know where pictures lie
CHUNK = 64  # pictures that a process is given at a time
CODE = ("datasets/images.py", "convert_pictures.py", "picture_index.py", "pictures.py")


class UnreadablePictures(Error):
    """More pictures than allowed do not decode; the message names the first."""


@dataclass(frozen=True)
class Settings:
    """What data.images.NAME says in a config.

    Attributes:
        path: folder with the pictures; if there is a `csv`, its paths are relative to it.
        csv: file that lists pictures and labels; None: a folder for each class.
        columns: headings of the CSV's column of paths and of that of labels.
        validation_share: of the pictures of each class that is held out, between 0 and 1.
        image_size: (height, width) of what is stored; None: pictures keep their sizes.
        max_unreadable: the share of the pictures that may be left out.
    """

    path: str | None = None
    csv: str | None = None
    columns: tuple[str, str] = ("file", "label")
    validation_share: float = 0.2
    seed: int = 1
    image_size: tuple[int, int] | None = None
    max_unreadable: float = 0

    def index(self) -> picture_index.Index:
        """The pictures.

        Raises:
            IndexingError: they or their classes are not as expected.
        """
        if self.csv:
            table = Path(self.csv).resolve()
            return picture_index.of_csv(table, self.folder, (self.columns[0], self.columns[1]))
        return picture_index.of_folder(self.folder)

    @property
    def folder(self) -> Path:
        """Names of pictures are relative to it."""
        if self.csv and not self.path:
            return Path(self.csv).resolve().parent
        return Path(self.path or "").resolve()


class Identified(NamedTuple):
    """A user's pictures as they are now.

    Attributes:
        digest: of the names and contents, of the settings on which records depend, and of the code
            that makes records.
    """

    folder: Path
    digest: str


def has_source(given: Mapping[str, Any]) -> bool:
    """Whether a config says where the pictures are; it need not if a store has them converted."""
    return bool(given.get("path") or given.get("csv"))


def check(given: Mapping[str, Any]) -> None:
    """Find the pictures that data.images.NAME says; none is read.

    Raises:
        IndexingError: pictures or their classes are not as expected.
    """
    picture_index.check_classes(Settings(**given).index())


def identify(given: Mapping[str, Any], noted: Path | None = None) -> Identified:
    """Find and digest the pictures that data.images.NAME says.

    Args:
        noted: file with the digests that a conversion wrote: what has not changed since then, by
            names, sizes and times, is not read again.

    Raises:
        IndexingError: pictures or their classes are not as expected.
    """
    settings = Settings(**given)
    index = settings.index()
    picture_index.check_classes(index)
    known = read_json(noted) if noted else None
    contents = picture_index.contents(index, known if isinstance(known, dict) else None)
    return Identified(index.folder, _digest(settings, index, contents))


def as_converted(given: Mapping[str, Any], output: Path) -> Identified | None:
    """A user's pictures as they were converted into a folder, which are not read; None: not yet."""
    content = read_json(output / manifest.NAME)
    digest = content.get("code_sha256") if isinstance(content, dict) else None
    return Identified(Settings(**given).folder, digest) if digest else None


def convert(name: str, given: Mapping[str, Any], output: Path, workers: int | None = None) -> None:
    """Write the shards of dataset `name` and their manifest, from the pictures as they are now.

    Args:
        given: what data.images.NAME says in the config.
        workers: number of processes; default: one for each core.

    Raises:
        IndexingError: pictures or their classes are not as expected.
        UnreadablePictures: too many pictures do not decode.
    """
    settings = Settings(**given)
    index = settings.index()
    picture_index.check_classes(index)
    # Before the pictures are decoded: if one changes meanwhile, the next start finds it.
    contents = picture_index.contents(index)
    digest = _digest(settings, index, contents)
    output.mkdir(parents=True, exist_ok=True)
    workers = workers or len(os.sched_getaffinity(0))
    unreadable = _unreadable(index, settings.image_size, workers)
    _report(name, settings, index, unreadable, output)
    source_of_records = _source(settings, _without(index, unreadable))
    dataset = _dataset(settings, index, source_of_records)
    settings_kept = {key: value for key, value in given.items() if key not in PLACES}
    recipe = {
        "code_sha256": digest,
        "seed": convert_dataset.SEED,
        "check": "header",
        "source": {"pictures": picture_index.digest(index, contents), "settings": settings_kept},
    }
    further = {
        "class_names": [_text(label) for label in index.classes],
        "unreadable": len(unreadable),
    }
    convert_dataset.write(name, dataset, source_of_records, output, recipe, workers, further)
    write_json(output / NOTED, contents)


def source(given: Mapping[str, Any]) -> "Pictures":
    """The records of the pictures that data.images.NAME says."""
    settings = Settings(**given)
    return _source(settings, settings.index())


class Pictures:
    """A Source of pictures.

    Args:
        splits: {split: (name below the folder, number of its class)}.
        size: (height, width) of arrays; None: JPEGs of the pictures' own sizes.
    """

    def __init__(
        self,
        folder: Path,
        splits: Mapping[str, list[tuple[str, int]]],
        classes: list[str],
        size: tuple[int, int] | None,
    ) -> None:
        self._folder, self._splits, self._classes, self._size = folder, splits, classes, size

    def count(self, split: str) -> int:
        return len(self._splits[split])

    def location(self, split: str, index: int) -> str:
        return f"{self._folder}: {_text(self._splits[split][index][0])}"

    def features(self, split: str, index: int) -> dict[str, Any]:
        name, label = self._splits[split][index]
        content = (self._folder / name).read_bytes()
        encoded, height, width = as_stored(content, self._size, self.location(split, index))
        return {
            "image/encoded": encoded,
            "image/format": "RAW" if self._size else "JPEG",
            "image/height": height,
            "image/width": width,
            "image/filename": _text(name),
            "image/class/label": label,
            "image/class/text": _text(self._classes[label]),
        }


def as_stored(content: bytes, size: tuple[int, int] | None, where: str) -> tuple[bytes, int, int]:
    """(what is stored of a picture, height, width): an array of uint8 in RGB of a size, or a JPEG.

    Args:
        size: (height, width) of the array; None: a JPEG, which is `content` itself if that is an
            upright one in grey or RGB.

    Raises:
        PictureError: it does not decode.
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
    return Pictures(index.folder, splits, index.classes, settings.image_size)


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


def _digest(settings, index, contents):
    """The digest of all that records depend on."""
    code = own_code.digest([str(plugins.LIBRARY / "data" / file) for file in CODE])
    given = (settings.validation_share, settings.seed, settings.image_size)
    return json_digest([picture_index.digest(index, contents), given, code])


def _unreadable(index, size, workers):
    """{name: reason} of the pictures that do not decode; all are decoded."""
    names = [
        name for classes in index.splits.values() for group in classes.values() for name in group
    ]
    reason = functools.partial(_reason, index.folder, size)
    if workers == 1 or len(names) <= CHUNK:
        reasons = list(map(reason, names))
    else:
        with concurrent.futures.ProcessPoolExecutor(
            workers,
            multiprocessing.get_context("fork"),
            initializer=orphans.end_with_parent,
            initargs=(os.getpid(), signal.SIGKILL),
        ) as pool:
            reasons = list(pool.map(reason, names, chunksize=CHUNK))
    return {name: why for name, why in zip(names, reasons, strict=True) if why}


def _reason(folder, size, name):
    """Why a picture cannot be stored; None if it can."""
    where = _text(name)
    try:
        content = (folder / name).read_bytes()
        encoded, _, _ = as_stored(content, size, where)
        if encoded is content:
            pictures.decode(content, where)
    except OSError as error:
        return error.strerror
    except pictures.PictureError as error:
        return str(error).removeprefix(where).lstrip(": ")
    return None


def _report(name, settings, index, unreadable, output):
    """List unreadable pictures in a file.

    Raises:
        UnreadablePictures: they are more than allowed.
    """
    listed = output / UNREADABLE
    listed.unlink(missing_ok=True)
    if not unreadable:
        return
    lines = [f"{_text(picture)}: {why}\n" for picture, why in unreadable.items()]
    with atomic_write(listed) as part:
        part.write_text("".join(lines), encoding="utf-8")
    count = sum(len(names) for classes in index.splits.values() for names in classes.values())
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
    return picture_index.Index(index.folder, splits, index.listings)


def _text(name):
    """A name of a file as text in UTF-8, without characters that control a terminal."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return text if text.isprintable() else ascii(text)[1:-1]
