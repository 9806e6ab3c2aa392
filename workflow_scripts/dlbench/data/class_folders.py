"""A source of images in an archive with one folder for each class, as in cat/0001.jpg."""

from pathlib import Path
from typing import Any

from dlbench.data import archives
from dlbench.data.archives import ArchiveError


class ClassFolders:
    """The images of an uncompressed tar file, read one by one by means of an index.

    Classes are numbered from 0 in the order of their folders' names.

    Args:
        path: path of the tar file.
        held_out_every: one in so many images, in the order of names, is held out for validation.

    Raises:
        ArchiveError: the file is damaged, or an image is not in the folder of a class.
    """

    def __init__(self, path: Path, held_out_every: int = 5) -> None:
        self._path = path
        pictures = sorted(archives.tar_index(path))
        depths = [name.count("/") for name, _, _ in pictures]
        deepest = max(depths, default=0)
        for number, ((name, _, _), depth) in enumerate(zip(pictures, depths, strict=True)):
            if depth < max(deepest, 1):
                raise ArchiveError(
                    f"{path}: {name} (record {number}, counted from 0 in the order of names): "
                    "expected each picture in the folder of its class, as in cat/0001.jpg, all at "
                    "one depth; take it out of the archive, or put it into a class"
                )
        classes = sorted({_class(name) for name, _, _ in pictures})
        self._labels = {name: label for label, name in enumerate(classes)}
        held_out = pictures[::held_out_every]
        self._splits = {"train": sorted({*pictures} - {*held_out}), "validation": held_out}

    def count(self, split: str) -> int:
        return len(self._splits[split])

    def location(self, split: str, index: int) -> str:
        return f"{self._path}: {self._splits[split][index][0]}"

    def features(self, split: str, index: int) -> dict[str, Any]:
        name, offset, size_bytes = self._splits[split][index]
        with self._path.open("rb") as file:
            file.seek(offset)
            content = file.read(size_bytes)
        return {
            "image/encoded": content,
            "image/format": "JPEG",
            "image/filename": name,
            "image/class/label": self._labels[_class(name)],
            "image/class/text": _class(name),
        }


def _class(name):
    """The name of an image's folder; all folders of one name, wherever they are, are one class."""
    return name.split("/")[-2]
