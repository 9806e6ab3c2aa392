"""Reading a file from the disk, and again from the system's memory.

The system forgets what it keeps of a file where its owner says that it is not needed
(posix_fadvise(2), DONTNEED), once it is on the disk; no privilege is needed. Some file systems do
not obey: mincore(2) tells how much of the file is still in memory, and then nothing is said of
reading it cold.
"""

import ctypes
import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlbench.baselines import rounds

SIZE_BYTES, BLOCK_BYTES = 128 << 20, 1 << 20
ROUNDS = 3
MOST_KEPT = 0.01  # of a file that is read cold
COLD, WARM = "file_read_cold", "file_read_warm"


def rows(folder: Path, size_bytes: int = SIZE_BYTES) -> Iterator[dict[str, Any]]:
    """Yield the rows of reading cold and warm, of a new file in a folder, which is then removed."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".baseline-") as file:
        for _ in range(0, size_bytes, BLOCK_BYTES):
            file.write(os.urandom(BLOCK_BYTES))  # which no file system makes smaller
        file.flush()
        os.fsync(file.fileno())
        cold, warm, most_kept = [], [], 0.0
        for _ in range(ROUNDS):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            most_kept = max(most_kept, kept_share(file.fileno()))
            cold.append(_read_s(file.name))
            warm.append(_read_s(file.name))
    if most_kept > MOST_KEPT:
        reason = f"told to drop the file from memory, the file system kept {most_kept:.0%} of it"
        yield {"measure": COLD, "unit": "GB/s", "unknown": reason}
    else:
        yield rounds.timed(COLD, size_bytes, cold, size_bytes)
    yield rounds.timed(WARM, size_bytes, warm, size_bytes)


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


def _read_s(path):
    block = bytearray(BLOCK_BYTES)
    with open(path, "rb", buffering=0) as file:
        begin = time.perf_counter()
        while file.readinto(block):
            pass
        return time.perf_counter() - begin
