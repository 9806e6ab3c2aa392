"""Progress of long work on stderr: a bar on a terminal, a line every few seconds elsewhere."""

import os
import sys
import threading
import time

EVERY_S, REDRAWN_S = 5.0, 0.2
BAR = 30  # characters


class Progress:
    """Prints how much is done, and when it will end; nothing if all is done within EVERY_S.

    Args:
        what: is done, as in "photos: reading pictures".
        total: of them.
        size_bytes: of all of them, if these measure the time to go; 0: each takes as long.
    """

    def __init__(self, what: str, total: int, size_bytes: int = 0) -> None:
        self._what, self._total, self._size_bytes = what, total, size_bytes
        self._done = self._done_bytes = 0
        self._lock = threading.Lock()
        dumb = os.environ.get("TERM", "dumb") in ("dumb", "unknown")
        self._is_terminal = sys.stderr.isatty() and not dumb
        self._started_s = self._printed_s = time.monotonic()
        self._is_shown = False

    def add(self, count: int = 1, size_bytes: int = 0) -> None:
        """Count what a thread has done."""
        with self._lock:
            self._done += count
            self._done_bytes += size_bytes
            now = time.monotonic()
            every_s = REDRAWN_S if self._is_terminal and self._is_shown else EVERY_S
            is_last = self._is_shown and count and self._done == self._total
            if now - self._printed_s >= every_s or is_last:
                self._printed_s, self._is_shown = now, True
                self._print_progress(now - self._started_s, is_last)

    def _print_progress(self, seconds, is_last):
        share = self._done / max(self._total, 1)
        if self._size_bytes:
            share = min(self._done_bytes / self._size_bytes, 1)
        left = f", {seconds / share - seconds:.0f} s left" if share else ""
        line = f"{self._what}: {self._done} of {self._total}{left}"
        if self._is_terminal:
            bar = "#" * round(BAR * share)
            line = f"\r\x1b[K[{bar:.<{BAR}}] {line}"
        end = "\n" if is_last or not self._is_terminal else ""
        print(line, end=end, file=sys.stderr, flush=True)
