"""Snakemake's locks and marks of incomplete files in .snakemake, and its running processes.

Snakemake has no command that prints its locks and marks. By default both are files. With
`--persistence-backend db` they are in a database, which is not read: then `locks` and `marks` are
empty and `are_in_database` is true.
"""

import base64
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

LOCKS, INCOMPLETE = Path(".snakemake/locks"), Path(".snakemake/incomplete")
DATABASE = Path(".snakemake/metadata.db")
NOT_READ = (
    "not looked at: Snakemake's locks and marks of half-written files are in its database "
    "(--persistence-backend db)"
)


def are_in_database() -> bool:
    """Whether locks and marks may be in Snakemake's database instead of files."""
    return DATABASE.is_file()


def locks() -> list[Path]:
    """The files by which Snakemake has locked the current folder."""
    return sorted(LOCKS.glob("*.lock"))


def marks() -> Iterator[tuple[Path, str | None]]:
    """Yield (mark, the incomplete file that it names, or None)."""
    for mark in sorted(path for path in INCOMPLETE.rglob("*") if path.is_file()):
        yield mark, _marked(mark)


def _marked(mark):
    # A mark's path is the file's path in base 64, split into folders that begin with @.
    parts = [part.removeprefix("@") for part in mark.relative_to(INCOMPLETE).parts]
    with contextlib.suppress(ValueError, UnicodeDecodeError):
        return base64.b64decode("".join(parts), altchars=b"-_", validate=True).decode()
    return None


def workflows(folder: str | Path = ".") -> list[int]:
    """The ids of Snakemake processes that run in a folder, on this machine."""
    here = os.path.realpath(folder)
    return [pid for pid, command, cwd, _ in processes() if cwd == here and _is_snakemake(command)]


def processes() -> Iterator[tuple[int, list[str], str, int]]:
    """Yield (pid, command, folder, parent) of each process whose folder this user may see."""
    for process in psutil.process_iter(("cmdline", "cwd", "ppid")):
        command, folder, parent = (process.info[name] for name in ("cmdline", "cwd", "ppid"))
        if folder:  # None for processes of other users
            yield process.pid, command or [], folder, parent


def _is_snakemake(command):
    return any(Path(word).name == "snakemake" for word in command[:4])
