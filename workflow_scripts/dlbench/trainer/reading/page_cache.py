"""The files of a dataset in the system's memory (its page cache): dropped, or read, before a run.

- The system drops what it keeps of a file where a user says that it is not needed
  (posix_fadvise(2), DONTNEED), once it is on the disk; no privilege is needed. Some file systems do
  not obey.
- mincore(2) tells how much of a file is in memory, of files that the user owns or may write; of
  others the system does not tell.
- What a storage system or a disk keeps in memory of its own, nobody can drop from here.
"""

import contextlib
import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.trainer.reading.converted import Converted
from dlbench.trainer.reading.inputs import COLD, WARM

MOST_COLD, LEAST_WARM = 0.01, 0.99  # of the dataset in memory
BLOCK_BYTES = 1 << 20


def prepare(folder: str | Path, state: str) -> dict[str, Any]:
    """Drop a converted dataset from the system's memory, or read it.

    Args:
        folder: where its manifest lies.
        state: COLD or WARM.

    Returns:
        `files` and `bytes` of the dataset, and which share of it was in memory before
        (`kept_before`) and is now (`kept`); without these where the system does not tell.

    Raises:
        Error: there is no dataset, or the system did not obey.
    """
    data = Converted(folder)
    paths = [path for split in data.manifest["splits"] for path, _ in data.shards(split)]
    size = sum(path.stat().st_size for path in paths)
    before = _kept(paths)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            if state == COLD:
                with contextlib.suppress(OSError):  # of a file system that nobody can write
                    os.fsync(file.fileno())  # only what is on the disk is dropped
                forget(file.fileno())
            else:
                block = bytearray(BLOCK_BYTES)
                while file.readinto(block):
                    pass
    kept = _kept(paths)
    facts: dict[str, Any] = {"files": len(paths), "bytes": size}
    if before is None or kept is None:
        return facts
    if state == COLD and kept > MOST_COLD:
        raise Error(
            f"page_cache cold: {kept:.0%} of {data.name} stay in memory after they were dropped, "
            "as on a file system that lives in memory, or where another program uses them: move "
            "the data to a disk, or choose page_cache as_found"
        )
    if state == WARM and kept < LEAST_WARM:
        raise Error(
            f"page_cache warm: {kept:.0%} of the {size / 1e9:.3g} GB of {data.name} are in memory "
            "after they were read: expected all; choose page_cache as_found, or a node or a job "
            "with more memory"
        )
    return facts | {"kept_before": before, "kept": kept}


def forget(descriptor: int) -> None:
    """Tell the system that an open file is not needed in memory."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def kept_share(descriptor: int) -> float:
    """The share of an open file's pages that are in memory.

    Raises:
        OSError: the system does not say.
    """
    size = os.fstat(descriptor).st_size
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    libc = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY) as content:
        view = ctypes.c_char.from_buffer(content)
        failed = libc.mincore(ctypes.byref(view), ctypes.c_size_t(size), pages)
        del view  # a mapping with a view cannot be closed
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(page & 1 for page in pages) / len(pages)


def _kept(paths):
    """The share of files that is in memory; None where the system does not tell."""
    there, size = 0.0, 0
    for path in paths:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            if not facts.st_size:
                continue
            # Of files of others mincore says that all is there.
            if facts.st_uid != os.geteuid() and not os.access(path, os.W_OK):
                return None
            try:
                there += facts.st_size * kept_share(file.fileno())
            except OSError:
                return None
            size += facts.st_size
    return there / size if size else None
