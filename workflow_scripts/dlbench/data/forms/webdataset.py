"""WebDataset shards: tar files in which 0001.jpg and 0001.cls are a picture and its class.

Members whose paths agree up to the first dot of the file's name are a sample. Those that are
neither pictures nor classes are not read. Source: "The WebDataset Format", the documentation of
the package webdataset.
"""

import collections
import glob
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dlbench.common import own_code
from dlbench.data.archives import Member
from dlbench.data.picture_index import (
    ALL,
    SUFFIXES,
    TRAIN,
    VALIDATION,
    Index,
    IndexingError,
    first,
    in_order,
    is_class,
)

CLASS = ".cls"
MAX_CLASS_BYTES = 1000
MAX_SHARDS = 1_000_000
BRACES = re.compile(r"\{([^{}]+)\}")


def files(given: Mapping[str, Any]) -> dict[str, list[Path]]:
    """The shards of each split. Raises IndexingError: some do not exist."""
    if "validation" not in given:
        return {ALL: _existing(given["webdataset"])}
    return {TRAIN: _existing(given["webdataset"]), VALIDATION[0]: _existing(given["validation"])}


def expanded(pattern: str) -> Iterator[str]:
    """The names that a pattern with braces means.

    >>> list(expanded("a-{08..10}.tar")), list(expanded("{a,b}.tar"))
    (['a-08.tar', 'a-09.tar', 'a-10.tar'], ['a.tar', 'b.tar'])
    """
    found = BRACES.search(pattern)
    if not found:
        yield pattern
        return
    ends = re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", found[1])
    words: Any = found[1].split(",")
    if ends:
        numbers = range(int(ends[1]), int(ends[2]) + 1)
        words = (f"{number:0{len(ends[1])}d}" for number in numbers)
    for word in words:
        yield from expanded(pattern[: found.start()] + word + pattern[found.end() :])


def _existing(pattern):
    paths = []
    for name in expanded(pattern):
        paths += sorted(glob.glob(name)) if glob.has_magic(name) else [name]
        if len(paths) > MAX_SHARDS:
            raise IndexingError(f"{pattern}: more than {MAX_SHARDS} shards: a number too long?")
    if not paths:
        raise IndexingError(f"{pattern}: there is no such file{own_code.search_hint(pattern)}")
    if missing := [path for path in paths if not os.path.isfile(path)]:
        raise IndexingError(
            f"{pattern}: {len(missing)} of {len(paths)} shards do not exist: {first(missing)}"
            f"{own_code.search_hint(missing[0])}"
        )
    return [Path(path) for path in paths]


def index(given: Mapping[str, Any], place: Path | None = None) -> Index:
    """The pictures, each at its place in a shard.

    Raises IndexingError: a shard is damaged, or a sample has no picture or no class.
    """
    parts = files(given)
    folder = Path(os.path.commonpath([path.parent for paths in parts.values() for path in paths]))
    splits, places = {}, {}
    for part, paths in parts.items():
        classes: dict[str, list[str]] = collections.defaultdict(list)
        for path in paths:
            shard = path.relative_to(folder)
            for name, label, offset, size_bytes in _samples(path):
                places[f"{shard}:{name}"] = path, offset, size_bytes
                classes[label].append(f"{shard}:{name}")
        splits[part] = {label: sorted(classes[label]) for label in in_order(classes)}
    return Index(folder, splits, places=places)


def _samples(path):
    """Yield (name of the picture, class, its offset, its bytes) of a shard."""
    samples: dict[str, dict[str, tuple[str, int, int]]] = collections.defaultdict(dict)
    for member in _members(path):
        parent, _, name = member.name.rpartition("/")
        stem, dot, extension = name.partition(".")
        if not stem or not dot or name.startswith("__"):  # hidden, or of the tool
            continue
        sample, suffix = samples[f"{parent}/{stem}"], f".{extension.lower()}"
        if suffix not in (CLASS, *SUFFIXES):
            continue
        kind = CLASS if suffix == CLASS else "picture"
        if kind in sample:
            raise IndexingError(
                f"{path}: expected one picture and one class in a sample, found {sample[kind][0]} "
                f"and {member.name}"
            )
        sample[kind] = member.name, member.offset_data, member.size
    for lacking in (CLASS, "picture"):
        if without := [key.lstrip("/") for key, sample in samples.items() if lacking not in sample]:
            expected = "a class, as in 0001.cls beside 0001.jpg,"
            raise IndexingError(
                f"{path}: expected {expected if lacking == CLASS else 'a picture'} in each sample, "
                f"found none in {len(without)} of {len(samples)}: {first(without)}"
            )
    with open(path, "rb") as file:
        for sample in samples.values():
            name, offset, size_bytes = sample["picture"]
            yield name, _label(file, path, *sample[CLASS]), offset, size_bytes


def _members(path):
    """The plain files of a tar, to its end."""
    try:
        with tarfile.open(path, "r:", tarinfo=Member) as archive:
            while member := archive.next():
                archive.members.clear()  # all of them are not kept in memory
                if member.isreg():
                    yield member
            end = archive.offset
        # tarfile takes a file that ends after a member for complete.
        if os.path.getsize(path) < end + tarfile.BLOCKSIZE:
            raise tarfile.ReadError("its end is missing")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise IndexingError(
            f"{path}: expected a complete tar file that is not compressed: {error}: it is cut off, "
            "damaged or of another kind"
        ) from error


def _label(file, path, name, offset, size_bytes):
    content = os.pread(file.fileno(), min(size_bytes, MAX_CLASS_BYTES), offset)
    label = content.decode("utf-8", "replace").strip()
    if not is_class(label) or size_bytes > MAX_CLASS_BYTES or not label.isprintable():
        raise IndexingError(
            f"{path}: {name}: expected a class, which is a whole number or a name, found "
            f"{label[:40]!r}"
        )
    return label
