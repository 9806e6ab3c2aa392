"""Files with logs: found in folders, and known by what is in them.

Hidden files and folders are skipped; links are followed, each folder once.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from dlbench import Error, plugins
from dlbench.logfile import LogError, LogFile

KIND = "importers"


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
        entries = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
        below = [entry for entry in entries if entry.is_dir()]
        here = [
            Found(entry, f"{name}{entry.name}", False) for entry in entries if entry not in below
        ]
        if here:
            yield here
        for entry in below:
            yield from look(entry, f"{name}{entry.name}/")

    yield from look(given, "")


def kind(path):
    """(LogFile, the one importer that knows it, or None, why not).

    Raises:
        Error: several importers know it.
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
    if len(known) > 1:
        raise Ambiguous(f"{path}: a log of several kinds: {', '.join(known)}")
    return log, (known[0] if known else None), "" if known else "no importer knows it"
