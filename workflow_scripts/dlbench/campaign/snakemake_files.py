"""Snakemake's locks in .snakemake, and its running processes.

Snakemake has no command that prints its locks. By default they are files. With
`--persistence-backend db` they are in a database, which is not read: then `locks` is empty.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import psutil

LOCKS = Path(".snakemake/locks")


def locks() -> list[Path]:
    """The files by which Snakemake has locked the current folder."""
    return sorted(LOCKS.glob("*.lock"))


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
