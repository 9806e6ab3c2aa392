"""Digests of files and folders on disk."""

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from dlbench.common.files import sha256


def content_digest(source: str | Path) -> str:
    """SHA-256 of a file's content, or of a folder's names, modes, links and contents."""
    path = Path(source)
    return f"sha256:{_tree_digest(path, content=True) if path.is_dir() else sha256(path)}"


def stat_signature(source: str | Path) -> str:
    """Path, sizes and modification times, as text: cheap to read; a new content changes it."""
    path = Path(source).absolute()
    if path.is_dir():
        return f"{path} {_tree_digest(path, content=False)}"
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def _tree_digest(folder, content):
    """SHA-256 of a tree's names, modes and links, and of its files' contents.

    Args:
        content: False: sizes and modification times of the files instead of their contents.
    """
    total = hashlib.sha256()
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = Path(root, name)
            status = path.lstat()
            detail = ""
            if stat.S_ISLNK(status.st_mode):
                detail = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                times = f"{status.st_size} {status.st_mtime_ns}"
                detail = _file_digest(path) if content else times
            fields = [str(path.relative_to(folder)), str(status.st_mode), detail]
            total.update(("\0".join(fields) + "\n").encode(errors="surrogateescape"))
    return total.hexdigest()


def _file_digest(path):
    # Some files of a root folder are readable by root only; no run reads them.
    with contextlib.suppress(PermissionError):
        return sha256(path)
    return "not readable"
