"""A log of another program: plain or gzip-ed, in UTF-8 or not, perhaps cut short, never trusted."""

import functools
import gzip
import zlib
from pathlib import Path

from dlbench import Error

HEAD_BYTES = 65_536
MOST_LINE_BYTES = 16 * 2**20  # a longer line is no line of a log
MOST_BYTES = 8 * 2**30  # of a log once it is unpacked


class LogError(Error):
    """A log that cannot be used; the message has file, line and reason."""


class LogFile:
    """One file. `head` is the beginning of what is in it, once it is unpacked."""

    def __init__(self, path):
        self.path = Path(path)

    @functools.cached_property
    def head(self):
        """The first HEAD_BYTES, as bytes."""
        try:
            with self._opened() as file:
                return file.read(HEAD_BYTES)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return b""

    @property
    def head_text(self):
        """`head` as text; what is not UTF-8 is U+FFFD."""
        return self.head.decode("utf-8", "replace").removeprefix("\ufeff")

    def chunks(self):
        """The content as (bytes, ...), for formats that are no text.

        Raises:
            LogError: it cannot be read to its end.
        """
        return self._read(lambda file: iter(lambda: file.read(2**20), b""))

    def lines(self):
        """Yield (number from 1, text without its newline); what is not UTF-8 is U+FFFD.

        Raises:
            LogError: it cannot be read to its end, or a line is no line.
        """
        read = self._read(lambda file: iter(lambda: file.readline(MOST_LINE_BYTES), b""))
        for number, line in enumerate(read, start=1):
            if len(line) == MOST_LINE_BYTES:
                raise self.error(number, f"longer than {MOST_LINE_BYTES} bytes: is this a log?")
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            yield number, text.removeprefix("\ufeff") if number == 1 else text

    def error(self, line, reason):
        """A LogError about one line."""
        return LogError(f"{self.path}, line {line}: {reason}")

    def _opened(self):
        file = open(self.path, "rb")  # noqa: SIM115
        if file.peek(2)[:2] == b"\x1f\x8b":
            return gzip.GzipFile(fileobj=file)
        return file

    def _read(self, parts):
        total = 0
        try:
            with self._opened() as file:
                for part in parts(file):
                    total += len(part)
                    if total > MOST_BYTES:
                        raise LogError(f"{self.path}: more than {MOST_BYTES} bytes of log")
                    yield part
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise LogError(f"{self.path}: damaged gzip after {total} bytes: {error}") from error
