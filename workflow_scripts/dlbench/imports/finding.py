"""Files with logs: found in folders, and known by what is in them.

Hidden files and folders are skipped; links are followed, each folder once. What Keras writes for
TensorBoard into train/ and validation/ is of one run, so of one folder here.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from dlbench import Error
from dlbench.common import plugins
from dlbench.imports.importers._event_files import is_event_file
from dlbench.imports.log_file import HEAD_BYTES, LogError, LogFile

KIND = "importers"
PARTS = {"train", "validation"}  # folders of one run
UNKNOWN = f"no importer knows it by its first {HEAD_BYTES // 1024} KiB"


@dataclass(frozen=True)
class Found:
    """A file: where it is, that relative to what was given, and whether it was given itself."""

    path: Path
    name: str
    alone: bool

    @property
    def folder(self):
        """Relative to what was given; "" for its own folder."""
        return self.name.rpartition("/")[0]


class Ambiguous(LogError):
    """A log that several importers know."""


def folders(paths, is_special):
    """Yield the files of each folder of what was given, as lists, in the order of their names.

    Args:
        paths: files, which come first, and folders.
        is_special: called with each folder; where it is true, the folder comes as one Found, as
            it is, in a list of its own.

    Raises:
        Error: one is not there.
    """
    paths = [Path(path) for path in paths]
    for path in paths:
        if not path.exists():
            raise Error(f"{path}: no such file or folder")
    by_folder = {}
    for path in (path for path in paths if not path.is_dir()):
        by_folder.setdefault(os.path.realpath(path.parent), {})[path.name] = path
    for beside in by_folder.values():
        yield [Found(path, name, True) for name, path in sorted(beside.items())]
    for path in (path for path in paths if path.is_dir()):
        yield from _below(path, is_special)


def _below(given, is_special):
    seen = set()

    def look(folder, name):
        real = os.path.realpath(folder)
        if real in seen:
            return
        seen.add(real)
        if is_special(folder):
            yield [Found(folder, name or folder.name, name == "")]
            return
        entries = _entries(folder)
        below = [entry for entry in entries if entry.is_dir()]
        here = [
            Found(entry, f"{name}{entry.name}", False) for entry in entries if entry not in below
        ]
        parts = _parts(below)
        seen.update(map(os.path.realpath, parts))
        here += [
            Found(entry, f"{name}{part.name}/{entry.name}", False)
            for part in parts
            for entry in _entries(part)
        ]
        if here:
            yield here
        for entry in below:
            yield from look(entry, f"{name}{entry.name}/")

    yield from look(given, "")


def _entries(folder):
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _parts(folders):
    """Those of some folders that are the two of one run, with event files and nothing else."""
    parts = [folder for folder in folders if folder.name in PARTS]
    if len(parts) < len(PARTS):
        return []
    files = [_entries(part) for part in parts]
    return parts if all(map(_is_events, (f for found in files for f in found))) else []


def _is_events(path):
    return path.is_file() and is_event_file(LogFile(path).head)


def kind(path, wanted=None, alone=False):
    """(LogFile, the one importer that knows it, or that is wanted, or None; why none knows it).

    Args:
        wanted: the importer for what several know and what none knows.
        alone: the file was given itself: the wanted importer is for it, too, whoever knows it.

    Raises:
        Error: several importers know it, and none of them is wanted.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None, None, "no file"
        log = LogFile(path)
        if not log.head:
            return log, None, "empty, or damaged from its beginning"
        known = [name for name in plugins.names(KIND) if plugins.load(KIND, name).recognise(log)]
    except OSError as error:
        return None, None, error.strerror or str(error)
    if wanted and (alone or not known or wanted in known):
        return log, wanted, "" if known else UNKNOWN
    if len(known) > 1:
        raise Ambiguous(
            f"{path}: a log of several kinds: {', '.join(known)}; --kind says which counts"
        )
    return log, (known[0] if known else None), "" if known else UNKNOWN
