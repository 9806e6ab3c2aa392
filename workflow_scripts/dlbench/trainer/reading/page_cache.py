"""The page cache before a run: the files of a dataset are dropped from it, or read into it.

- posix_fadvise(2) with DONTNEED makes the kernel drop the cached pages of a file that are on the
  disk; it needs no privilege. Some file systems ignore it.
- mincore(2) tells how much of a file is cached, if the user owns the file or may write it.
- Caches of a storage system or a disk cannot be dropped from here.
"""

import contextlib
import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.trainer.reading.converted import ConvertedDataset
from dlbench.trainer.reading.inputs import COLD, WARM

MAX_COLD, MIN_WARM = 0.01, 0.99  # the cached share of the dataset
BLOCK_BYTES = 1 << 20


def prepare(folder: str | Path, state: str) -> dict[str, Any]:
    """Drop a converted dataset from the page cache (COLD), or read it into the cache (WARM).

    Returns `files` and `bytes` of the dataset, and the share of it that was cached before
    (`kept_before`) and is cached now (`kept`), if the kernel tells these. Raises Error: the page
    cache did not get into that state.
    """
    data = ConvertedDataset(folder)
    paths = [path for split in data.manifest["splits"] for path, _ in data.shards(split)]
    size = sum(path.stat().st_size for path in paths)
    before = _cached_share(paths)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            if state == COLD:
                with contextlib.suppress(OSError):  # of a read-only file system
                    os.fsync(file.fileno())  # only pages that are on the disk are dropped
                drop(file.fileno())
            else:
                block = bytearray(BLOCK_BYTES)
                while file.readinto(block):
                    pass
    cached = _cached_share(paths)
    facts: dict[str, Any] = {"files": len(paths), "bytes": size}
    if before is None or cached is None:
        return facts
    if state == COLD and cached > MAX_COLD:
        raise Error(
            f"page_cache cold: {cached:.0%} of {data.name} are still in the page cache after "
            "eviction (a tmpfs, or another process has them mapped): move the data to a disk, or "
            "choose page_cache as_found"
        )
    if state == WARM and cached < MIN_WARM:
        raise Error(
            f"page_cache warm: {cached:.0%} of the {size / 1e9:.3g} GB of {data.name} are in "
            "memory after they were read: expected all; choose page_cache as_found, or a node or a "
            "job with more memory"
        )
    return facts | {"kept_before": before, "kept": cached}


def drop(descriptor: int) -> None:
    """Ask the kernel to drop the cached pages of an open file."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def cached_share(descriptor: int) -> float:
    """The share of an open file's pages that are cached.

    Raises OSError: the kernel does not tell.
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


def _cached_share(paths):
    """The cached share of some files; None if the kernel does not tell."""
    cached, size = 0.0, 0
    for path in paths:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            if not facts.st_size:
                continue
            # For files of other users mincore reports all pages as cached.
            if facts.st_uid != os.geteuid() and not os.access(path, os.W_OK):
                return None
            try:
                cached += facts.st_size * cached_share(file.fileno())
            except OSError:
                return None
            size += facts.st_size
    return cached / size if size else None
