"""Digests of files and folders as they lie on disk."""

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from dlbench.common.files import sha256


def content_digest(source):
    path = Path(source)
    return f"sha256:{_tree_digest(path, content=True) if path.is_dir() else sha256(path)}"


def state_of(source):
    """What changes whenever a file or folder does, and is cheap to ask for."""
    path = Path(source).absolute()
    if path.is_dir():
        return f"{path} {_tree_digest(path, content=False)}"
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def _tree_digest(folder, content):
    """Digest of a tree's names, modes and links, and of its files' content or else their times."""
    total = hashlib.sha256()
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = Path(root, name)
            status = path.lstat()
            what = ""
            if stat.S_ISLNK(status.st_mode):
                what = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                what = _file_digest(path) if content else f"{status.st_size} {status.st_mtime_ns}"
            words = [str(path.relative_to(folder)), str(status.st_mode), what]
            total.update(("\0".join(words) + "\n").encode(errors="surrogateescape"))
    return total.hexdigest()


def _file_digest(path):
    # In a folder that root made some files are for root only: no run of ours reads them.
    with contextlib.suppress(PermissionError):
        return sha256(path)
    return "not readable"
