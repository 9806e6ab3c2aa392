"""Atomic writes, and digests of files and of plain values."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)  # of an OSError: the disk or the quota is full


def add_filename(error: OSError, path: str | PathLike[str]) -> None:
    """Set the file name of an OSError for a full disk, which the system leaves out."""
    if error.errno in DISK_FULL and error.filename is None:
        error.filename = str(path)


@contextlib.contextmanager
def atomic_write(path: str | PathLike[str], force: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it replaces `path` when the block succeeds.

    Readers of `path` see the old content or the new, never a part of it, even after a kill or on a
    full disk. `force`: whether to flush the new content to the disk first, so that this holds after
    a power cut, too.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        if force:
            with open(part, "rb") as file:
                os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        add_filename(error, path)
        raise
    finally:
        part.unlink(missing_ok=True)


def write_json(path: str | PathLike[str], content: Any) -> None:
    """Write plain values as JSON, atomically."""
    with atomic_write(path) as part:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def require_file(path: str | PathLike[str]) -> None:
    """Check that a path leads to a plain file: to open a pipe waits, and a device may act.

    Raises OSError: it does not, or there is nothing.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "expected a plain file, no folder, pipe or device", str(path))


def sha256(path: str | PathLike[str]) -> str:
    """SHA-256 of a file's content, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def canonical_json(value: Any) -> bytes:
    """Plain values as JSON whose bytes are the same for equal values: sorted keys, no spaces.

    >>> canonical_json({"b": [1, 2], "a": None})
    b'{"a":null,"b":[1,2]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def json_digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of plain values, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def is_below(path: str | PathLike[str], folder: str | PathLike[str]) -> bool:
    """Whether a path is in a folder after symbolic links are resolved."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def files_below(path: str | PathLike[str]) -> list[Path]:
    """The plain files in a folder and its subfolders; if the path is not a folder, the path itself.

    Files outside of the folder, to which links lead, are left out.
    """
    path = Path(path)
    if not path.is_dir():
        return [path]
    return sorted(p for p in path.rglob("*") if p.is_file() and is_below(p, path))


def make_empty_folder(folder: str | PathLike[str]) -> Path:
    """Make an empty folder. What is there is removed first: of a link, the link alone."""
    folder = Path(folder)
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
    else:
        # An unpacked image has folders that are read-only for their owner.
        subprocess.run(["chmod", "--recursive", "u+rwX", folder], check=True)
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def read_json(path: str | PathLike[str]) -> dict[str, Any] | None:
    """The JSON object in a file; None if the file is absent or holds anything else."""
    try:
        require_file(path)
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
