"""Digest the contents of a user's files, of which only those that have changed are read again.

A million pictures need not be read at each start: files of a group are read if names, sizes or
times differ from those that an earlier digest noted.
"""

import concurrent.futures
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.common.files import json_digest
from dlbench.common.terminal import Progress

READERS = 8  # threads that read contents
PIECE_BYTES = 1 << 18  # read at once


class Group(NamedTuple):
    """Files that are digested together.

    Attributes:
        names: relative to a folder.
        listing: digest of the names, sizes and times.
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


def contents(
    what: str, folder: Path, groups: Mapping[str, Group], known: Mapping[str, Any] | None = None
) -> dict[str, dict[str, str]]:
    """The digests of each group: {key: {listing, content}}.

    Args:
        what: names the files in lines of progress.
        known: what this function returned before. Files of a group are read unless its listing
            is the same.
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
