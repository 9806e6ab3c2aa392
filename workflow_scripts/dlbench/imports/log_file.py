"""A log of another program: plain or gzip-ed, in UTF-8 or not, perhaps cut short, never trusted."""

import functools
import gzip
import hashlib
import zlib
from pathlib import Path

from dlbench import Error

HEAD_BYTES = 65_536
BLOCK_BYTES = 2**18
MOST_LINE_BYTES = 16 * 2**20  # a longer line is no line of a log
MOST_BYTES = 8 * 2**30  # of a log once it is unpacked
MOST_RATIO = 200  # to which a log was packed; of text of numbers it is 5 to 30
ANY_RATIO_BYTES = 64 * 2**20  # up to which all ratios are taken
BOM = b"\xef\xbb\xbf"
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)


class LogError(Error):
    """A log that cannot be used; the message has file, line and reason."""


class LogFile:
    """One file. `head` is the beginning of what is in it, once it is unpacked.

    Attributes:
        unfinished: number of the last line where it has no newline at its end, None where it has
            one, once the lines were read. Such a line may be a write that was cut short.
    """

    def __init__(self, path):
        self.path = Path(path)
        self.unfinished = None

    @functools.cached_property
    def head(self):
        """The first HEAD_BYTES, as bytes; of a damaged file, what there is."""
        head = b""
        try:
            with self._opened() as file:
                while len(head) < HEAD_BYTES and (part := file.read1(8192)):
                    head += part
        except _DAMAGED:
            pass
        return head[:HEAD_BYTES]

    @property
    def head_text(self):
        """`head` as text; what is not UTF-8 is U+FFFD."""
        return self.head.decode("utf-8", "replace").removeprefix("\ufeff")

    @functools.cached_property
    def sha256(self):
        """Of the content once it is unpacked, as 64 hexadecimal digits.

        Raises:
            LogError: it cannot be read to its end.
        """
        total = hashlib.sha256()
        for chunk in self.chunks():
            total.update(chunk)
        return total.hexdigest()

    def chunks(self):
        """The content as (bytes, ...), for formats that are no text.

        Raises:
            LogError: it cannot be read to its end.
        """
        return self._read(lambda file: iter(lambda: file.read(BLOCK_BYTES), b""))

    def lines(self):
        """Yield (number from 1, text without its newline); what is not UTF-8 is U+FFFD.

        Raises:
            LogError: it cannot be read to its end, or a line is no line.
        """
        self.unfinished = None
        read = self._read(lambda file: iter(lambda: file.readline(MOST_LINE_BYTES), b""))
        for number, line in enumerate(read, start=1):
            if len(line) == MOST_LINE_BYTES:
                raise self._too_long(number)
            if not line.endswith(b"\n"):
                self.unfinished = number
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            yield number, text.removeprefix("\ufeff") if number == 1 else text

    def blocks(self):
        """Yield (number of the first line, bytes of whole lines), about BLOCK_BYTES each.

        For logs of many lines, of which patterns find those that matter many times faster than
        `lines` can yield them. A last line without a newline is left out; see `unfinished`.

        Raises:
            LogError: it cannot be read to its end, or a line is no line.
        """
        self.unfinished = None
        number, rest = 1, b""
        for chunk in self.chunks():
            end = chunk.rfind(b"\n") + 1
            rest += chunk[:end] if end else chunk
            if len(rest) > MOST_LINE_BYTES:
                raise self._too_long(number)
            if not end:
                continue
            yield number, rest.removeprefix(BOM) if number == 1 else rest
            number += rest.count(b"\n")
            rest = chunk[end:]
        if rest:
            self.unfinished = number

    def error(self, line, reason):
        """A LogError about one line."""
        return LogError(f"{self.path}, line {line}: {reason}")

    def _too_long(self, line):
        return self.error(line, f"longer than {MOST_LINE_BYTES} bytes: is this a log?")

    def _opened(self):
        file = open(self.path, "rb")  # noqa: SIM115
        if file.peek(2)[:2] != b"\x1f\x8b":
            return file
        file.close()
        return gzip.open(self.path)

    def _read(self, parts):
        total, size = 0, self.path.stat().st_size
        try:
            with self._opened() as file:
                for part in parts(file):
                    total += len(part)
                    if total > MOST_BYTES:
                        raise LogError(f"{self.path}: more than {MOST_BYTES} bytes of log")
                    if total > max(ANY_RATIO_BYTES, MOST_RATIO * size):
                        raise LogError(
                            f"{self.path}: unpacks to more than {MOST_RATIO} times its "
                            f"{size} bytes: is this a log?"
                        )
                    yield part
        except _DAMAGED as error:
            raise LogError(f"{self.path}: damaged gzip after {total} bytes: {error}") from error
