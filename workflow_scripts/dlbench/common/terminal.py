"""Text for terminals and records, without control characters, and the progress of long work.

Progress is a bar on a terminal, and a line every few seconds elsewhere, both on stderr.
"""

import os
import re
import sys
import threading
import time

MAX_MESSAGE = 500  # characters of a failure's message
# Escape sequences (ECMA-48, 5.4; operating system commands end with BEL or ST), then all other
# control characters but tabs and new lines, and halves of characters.
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def plain(text: str) -> str:
    """A text without escape sequences and control characters; tabs and new lines stay.

    >>> plain("\\x1b[1;31mred\\x1b[0m\\x07 and \\x1b]0;title\\x07plain")
    'red and plain'
    """
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def message(text: str, most: int = MAX_MESSAGE) -> str:
    """A text as one plain line of at most `most` characters.

    The middle of a longer text is cut out, because its end usually has the reason.

    >>> message("what\\n  happened: " + 300 * "x" + " the reason", 40)
    'what happened: ... xxxxxxxxxx the reason'
    """
    line = " ".join(plain(text).split())
    if len(line) <= most:
        return line
    first = (most - 5) * 2 // 5
    return f"{line[:first].rstrip()} ... {line[first + 5 - most :].lstrip()}"


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
