"""Find pictures with their classes; nothing is decoded.

- A folder with a folder for each class, or a CSV file with a column of paths and one of labels.
- Where a folder has train/ beside validation/ (or val/, valid/, test/), these are the splits.
- An archive with one folder for each class, as in cat/0001.jpg, is a source of images, too.
- Contents are digested, but a million pictures need not be read at each start: files of a group are
  read again if names, sizes or times differ from those that an earlier digest noted.
"""

import collections
import concurrent.futures
import csv
import hashlib
import os
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dlbench import Error
from dlbench.common import own_code
from dlbench.common.files import json_digest
from dlbench.common.terminal import Progress
from dlbench.data import archives
from dlbench.data.archives import ArchiveError

TRAIN, VALIDATION = "train", ("validation", "val", "valid", "test")
ALL = ""  # the split of pictures that are still to be split
SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm"),
)
SHOWN = 3  # names in a message
READERS = 8  # threads that read contents
PIECE_BYTES = 1 << 18  # read at once


class IndexingError(Error):
    """Pictures or their classes are not as expected; the message says what was found."""


class Group(NamedTuple):
    """Files that are digested together.

    `names`: relative to a folder; `listing`: digest of the names, sizes and times.
    """

    names: list[str]
    listing: str
    size_bytes: int


def group(entries: Iterable[tuple[str, int, int]]) -> Group:
    """The group of files from (name, bytes, time in ns) of each."""
    names, total, size_bytes = [], hashlib.sha256(), 0
    for name, file_bytes, time_ns in entries:
        names.append(name)
        total.update(os.fsencode(name) + f"\0{file_bytes} {time_ns}\n".encode())
        size_bytes += max(0, file_bytes)
    return Group(names, total.hexdigest(), size_bytes)


@dataclass(frozen=True)
class Index:
    """The pictures of a dataset.

    Attributes:
        folder: names of pictures are relative to it.
        splits: {split: {class: names, sorted}}; the split is ALL if they are still to be split.
        groups: {split/class: its files}; none if pictures are in files with others.
        places: (file, offset, bytes) of each picture that is in a file with others.
    """

    folder: Path
    splits: dict[str, dict[str, list[str]]]
    groups: Mapping[str, Group] = field(default_factory=dict)
    places: Mapping[str, tuple[Path, int, int]] = field(default_factory=dict)

    @property
    def classes(self) -> list[str]:
        """The names of classes in the order of their numbers, from 0."""
        return list(self.splits.get(TRAIN) or self.splits[ALL])

    @property
    def names(self) -> list[str]:
        """Of all pictures."""
        every = (names for classes in self.splits.values() for names in classes.values())
        return [name for names in every for name in names]

    def read(self, name: str) -> bytes:
        """The content of a picture's file. Raises OSError: it cannot be read."""
        if name not in self.places:
            return (self.folder / name).read_bytes()
        path, offset, size_bytes = self.places[name]
        with open(path, "rb") as file:
            return os.pread(file.fileno(), size_bytes, offset)


def of_folder(folder: Path) -> Index:
    """The pictures of a folder with a folder for each class.

    Raises IndexingError: there are none, or pictures are not in the folder of a class.
    """
    if not folder.is_dir():
        raise IndexingError(
            f"{folder}: expected a folder with a folder of pictures for each class, found "
            f"{'a file' if folder.exists() else 'nothing there'}"
            f"{own_code.search_hint(folder)}"
        )
    try:
        parts = _split_folders(folder)
        found = {split: _class_folders(folder, name) for split, name in parts.items()}
    except OSError as error:
        raise IndexingError(f"{error.filename} cannot be read: {error.strerror}") from error
    return _index(folder, found)


def of_csv(path: Path, folder: Path, columns: tuple[str, str]) -> Index:
    """The pictures that a CSV file lists.

    `folder`: paths in the file are relative to it; `columns`: headings of the column of paths and
    of that of labels. Raises IndexingError: a column, a path or a label is missing, or labels are
    no classes.
    """
    labels = _labels(path, columns)
    entries: dict[str, list[tuple[str, int, int]]] = collections.defaultdict(list)
    missing = []
    for name, label in labels.items():
        try:
            state = os.stat(folder / name)
            entries[label].append((name, state.st_size, state.st_mtime_ns))
        except OSError:
            missing.append(name)
    if missing:
        raise IndexingError(
            f"{path}: {len(missing)} of {len(labels)} paths do not exist below {folder}: "
            f"{first(missing)}; paths are relative to the CSV file, or to `path` if it is given"
        )
    return _index(folder, {ALL: {label: sorted(entries[label]) for label in in_order(entries)}})


def in_order(labels: Iterable[str]) -> list[str]:
    """Classes in the order of their numbers: by number if all are whole numbers, or by name."""
    labels = list(labels)
    return sorted(labels, key=int if all(map(_is_whole, labels)) else None)


def split(index: Index, share: float, seed: int) -> dict[str, list[tuple[str, int]]]:
    """(name, number of its class) of the pictures of `train` and `validation`.

    A share of each class is held out, at least one picture and not all, unless the splits are
    folders. Which ones depends on the names, the share and the seed. Raises IndexingError: a class
    has too few pictures, or one split has other classes than the other.
    """
    check_classes(index)
    numbers = {name: number for number, name in enumerate(index.classes)}
    if ALL not in index.splits:
        return {
            part: [(name, numbers[label]) for label in classes for name in classes[label]]
            for part, classes in index.splits.items()
        }
    parts: dict[str, list[tuple[str, int]]] = {TRAIN: [], VALIDATION[0]: []}
    for label, names in index.splits[ALL].items():
        count = min(max(1, round(share * len(names))), len(names) - 1)
        held_out = set(random.Random(f"{seed}/{label}").sample(names, count))
        for name in names:
            parts[VALIDATION[0] if name in held_out else TRAIN].append((name, numbers[label]))
    return parts


def check_classes(index: Index) -> None:
    """Check that there are classes, each with pictures in both splits.

    Raises IndexingError: there are not.
    """
    for part, classes in index.splits.items():
        where = index.folder / part
        if empty := [label for label, names in classes.items() if not names]:
            raise IndexingError(
                f"{where}: expected pictures in the folder of each class, found none in "
                f"{first(empty)} (those of {', '.join(SUFFIXES)} count): take the folder "
                "out"
            )
        if len(classes) < 2:
            hint = ": name the folder that has a folder for each class" if index.groups else ""
            raise IndexingError(
                f"{where}: expected two classes or more, found {first(classes) or 'none'}{hint}"
            )
    if ALL in index.splits:
        single = [label for label, names in index.splits[ALL].items() if len(names) < 2]
        if single:
            raise IndexingError(
                f"{index.folder}: expected two pictures or more of each class, one to train on and "
                f"one to hold out, found one in {len(single)} of {len(index.classes)} classes: "
                f"{first(single)}"
            )
        return
    train, validation = (index.splits[part] for part in (TRAIN, VALIDATION[0]))
    if train.keys() != validation.keys():
        only = [
            f"only {part} has {first(sorted(these.keys() - others.keys()))}"
            for part, these, others in (
                ("train", train, validation),
                ("validation", validation, train),
            )
            if these.keys() - others.keys()
        ]
        raise IndexingError(
            f"{index.folder}: expected the same classes for training and validation: "
            f"{'; '.join(only)}"
        )


def first(names: Iterable[str]) -> str:
    """The first names, for a message."""
    names = list(names)
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _index(folder, found):
    """An Index from {split: {class: sorted (name, bytes, time) of its pictures}}."""
    groups = {
        part: {label: group(entries) for label, entries in classes.items()}
        for part, classes in found.items()
    }
    return Index(
        folder,
        {
            part: {label: one.names for label, one in classes.items()}
            for part, classes in groups.items()
        },
        groups={
            f"{part}/{label}": one
            for part, classes in groups.items()
            for label, one in classes.items()
        },
    )


def _split_folders(folder):
    """{split: the folder that has its classes, relative to `folder`}."""
    inside = _folders(folder)
    validation = [name for name in VALIDATION if name in inside]
    if TRAIN not in inside or not (validation or inside == [TRAIN]):
        if validation and set(inside) <= set(VALIDATION):
            raise IndexingError(f"{folder}: expected train/ beside {validation[0]}/, found none")
        return {ALL: ""}
    if classes := sorted(set(inside) - {TRAIN, *VALIDATION}):
        raise IndexingError(
            f"{folder}: expected train/ and {validation[0]}/ and nothing else, or a folder for "
            f"each class; found both: {first(classes)} beside train/"
        )
    return {TRAIN: TRAIN, VALIDATION[0]: validation[0]} if validation else {ALL: TRAIN}


def _class_folders(folder, part):
    """{class: sorted (name, bytes, time) of its pictures} of a folder with a folder for each."""
    place = folder / part
    loose = sorted(
        name
        for name in os.listdir(place)
        if not name.startswith(".")
        and name.lower().endswith(SUFFIXES)
        and not (place / name).is_dir()
    )
    if loose:
        raise IndexingError(
            f"{place}: expected each picture in the folder of its class, as in cat/0001.jpg, found "
            f"{len(loose)} outside: {first(loose)}; put them into classes, or list them in a CSV"
        )
    prefix = f"{part}/" if part else ""
    classes = {
        label: sorted(_pictures(place / label, f"{prefix}{label}/")) for label in _folders(place)
    }
    if not any(classes.values()):
        suffixes = collections.Counter(
            Path(file).suffix.lower() or "no suffix"
            for _, _, files in os.walk(place)
            for file in files
        )
        others = ", ".join(f"{count} of {name}" for name, count in suffixes.most_common(SHOWN))
        raise IndexingError(
            f"{place}: expected a folder of pictures for each class, found no picture (files of "
            f"{', '.join(SUFFIXES)}); there are: {others or 'no files'}"
        )
    return classes


def _folders(folder):
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))


def _pictures(folder: Path | str, prefix: str) -> Iterator[tuple[str, int, int]]:
    """Yield (name, bytes, time in ns) of the pictures of a folder and of those in it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                _check_link(entry)
                yield from _pictures(entry.path, f"{prefix}{entry.name}/")
            elif entry.name.lower().endswith(SUFFIXES):
                try:
                    state = entry.stat()
                    yield prefix + entry.name, state.st_size, state.st_mtime_ns
                except FileNotFoundError:  # a link to nothing
                    yield prefix + entry.name, -1, 0


def _check_link(entry):
    """Check that a folder is no link to one that has it."""
    target = os.path.realpath(entry.path) if entry.is_symlink() else ""
    if target and Path(os.path.realpath(os.path.dirname(entry.path))).is_relative_to(target):
        raise IndexingError(f"{entry.path}: a link to {target}, a folder that has this link")


def _labels(path, columns):
    """{path of a picture: its label} of a CSV file."""
    labels: dict[str, str] = {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            headings = rows.fieldnames or []
            if absent := [name for name in columns if name not in headings]:
                raise IndexingError(
                    f"{path}: expected the columns {' and '.join(columns)}, found no "
                    f"{' and no '.join(absent)}; there are: {', '.join(headings) or 'none'} "
                    "(`columns` names others)"
                )
            for row in rows:
                name, label = ((row[column] or "").strip() for column in columns)
                where = f"{path}, line {rows.line_num}"
                if not name or not is_class(label):
                    raise IndexingError(
                        f"{where}: expected a path and a class, which is a name or a whole number; "
                        f"found {name!r} and {label!r}"
                    )
                if name in labels:
                    raise IndexingError(f"{where}: {name} is in an earlier line, too")
                labels[name] = label
    except OSError as error:
        raise IndexingError(
            f"{path} cannot be read ({error.strerror}){own_code.search_hint(path)}"
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise IndexingError(f"{path}: expected a CSV file in UTF-8: {error}") from error
    if not labels:
        raise IndexingError(f"{path}: expected a line for each picture, found none")
    return labels


def is_class(label: str) -> bool:
    """Whether a label is a name or a whole number; 0.5 is a target, and nan an empty cell."""
    if _is_whole(label):
        return True
    try:
        float(label)
    except ValueError:
        return bool(label)
    return False


def _is_whole(label):
    return label.isascii() and label.isdecimal() and len(label) < 19


def contents(
    what: str, folder: Path, groups: Mapping[str, Group], known: Mapping[str, Any] | None = None
) -> dict[str, dict[str, str]]:
    """The digests of each group: {key: {listing, content}}.

    `what` names the files in lines of progress. `known` is what this function returned before:
    files of a group are read unless its listing is the same.
    """
    known = known or {}
    done = {key: known[key] for key, one in groups.items() if _is_known(known, key, one.listing)}
    todo = {key: one for key, one in groups.items() if key not in done}
    count = sum(len(one.names) for one in todo.values())
    progress = Progress(what, count, sum(one.size_bytes for one in todo.values()))
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        digests = pool.map(lambda one: _content(folder, one.names, progress), todo.values())
        for (key, one), content in zip(todo.items(), digests, strict=True):
            done[key] = {"listing": one.listing, "content": content}
    return {key: done[key] for key in groups}


def digest(classes: list[str] | None, of_contents: Mapping[str, Mapping[str, str]]) -> str:
    """The digest of names, contents and classes, by what `contents` returned."""
    return json_digest([classes, {key: entry["content"] for key, entry in of_contents.items()}])


def _is_known(known, key, listing):
    entry = known.get(key)
    return isinstance(entry, dict) and entry.get("listing") == listing and "content" in entry


def _content(folder, names, progress):
    total = hashlib.sha256()
    for name in names:
        total.update(os.fsencode(name) + b"\0")
        try:
            total.update(_sha256(os.path.join(folder, name), progress))
        except OSError as error:
            total.update(f"{error.strerror}\0".encode())  # it is reported when it is converted
        progress.add()
    return total.hexdigest()


def _sha256(path, progress):
    one = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY)  # open() takes twice as long for a small file
    try:
        while piece := os.read(descriptor, PIECE_BYTES):
            one.update(piece)
            progress.add(0, len(piece))
    finally:
        os.close(descriptor)
    return one.digest()


class ClassFolders:
    """The images of an uncompressed tar file, read one by one by means of an index.

    Classes are numbered from 0 in the order of their folders' names. `path`: path of the tar file;
    `held_out_every`: one in so many images, in the order of names, is held out for validation.
    Raises ArchiveError: the file is damaged, or an image is not in the folder of a class.
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
