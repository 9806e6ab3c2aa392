"""Reading a file from the disk, and again from the system's memory.

Where the file system keeps the file in memory though it should drop it
(dlbench/trainer/reading/page_cache.py), there is no value for reading it cold.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlbench.baselines import rounds
from dlbench.trainer.reading import page_cache

SIZE_BYTES, BLOCK_BYTES = 128 << 20, 1 << 20
ROUNDS = 3
MAX_CACHED = 0.01  # of a file that is read cold
COLD, WARM = "file_read_cold", "file_read_warm"


def rows(folder: Path, size_bytes: int = SIZE_BYTES) -> Iterator[dict[str, Any]]:
    """Yield the rows of reading cold and warm, of a new file in a folder, which is then removed."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".baseline-") as file:
        for _ in range(0, size_bytes, BLOCK_BYTES):
            file.write(os.urandom(BLOCK_BYTES))  # which no file system makes smaller
        file.flush()
        os.fsync(file.fileno())
        cold, warm, cached_share = [], [], 0.0
        for _ in range(ROUNDS):
            page_cache.drop(file.fileno())
            cached_share = max(cached_share, page_cache.cached_share(file.fileno()))
            cold.append(_read_s(file.name))
            warm.append(_read_s(file.name))
    if cached_share > MAX_CACHED:
        reason = f"told to drop the file from memory, the file system kept {cached_share:.0%} of it"
        yield {"measure": COLD, "unit": "GB/s", "unknown": reason}
    else:
        yield rounds.timed(COLD, size_bytes, cold, size_bytes)
    yield rounds.timed(WARM, size_bytes, warm, size_bytes)


def _read_s(path):
    block = bytearray(BLOCK_BYTES)
    with open(path, "rb", buffering=0) as file:
        start = time.perf_counter()
        while file.readinto(block):
            pass
        return time.perf_counter() - start
