"""A source of pictures in an archive that has a folder for each class, as in cat/0001.jpg."""

from pathlib import Path
from typing import Any

from dlbench.data import archives
from dlbench.data.archives import ArchiveError


class ClassFolders:
    """The pictures of an uncompressed tar file, and an index of them; they are read one by one.

    The classes are numbered from 0 in the order of their folders' names.

    Args:
        path: of the tar file.
        held_out_every: every so manieth picture, in the order of names, is held out for validation.

    Raises:
        ArchiveError: the file is damaged, or a picture is not in a folder of its class.
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
    """The folder in which a picture lies: two with one name, in other folders, are one class."""
    return name.split("/")[-2]
