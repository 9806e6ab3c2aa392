"""Read a log of another program, plain or gzip-ed; size, encoding and end are checked.

Importers of text get the text that `log_text` returns: UTF-8, without colours and progress bars.
"""

import functools
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path

from dlbench import Error
from dlbench.imports import log_text

HEAD_BYTES = 65_536
BLOCK_BYTES = 2**18
MAX_LINE_BYTES = 16 * 2**20
MAX_BYTES = 8 * 2**30  # of an unpacked log
MAX_RATIO = 200  # of unpacked to packed bytes; text with numbers has 5 to 30
ANY_RATIO_BYTES = 64 * 2**20  # smaller logs may have any ratio
CONTROLS = bytes({*range(32)} - {*b"\t\n\r\f\b\x1b"})
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)


def is_binary(content: bytes) -> bool:
    """Whether content is binary: zeros at the beginning, or over 1 % control characters."""
    controls = len(content) - len(content.translate(None, CONTROLS))
    return b"\0" in content[:64] or controls > len(content) // 100


class LogError(Error):
    """A log cannot be used; the message has file, line and reason."""


class LogFile:
    """One file; gzip-ed content is unpacked.

    Attributes:
        unfinished: number of the last line if it does not end with a newline, else None; set after
            all lines were read. The program may have been writing that line.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.unfinished: int | None = None
        self._last, self._plain = b"", log_text.plain

    @functools.cached_property
    def beginning(self) -> bytes:
        """The first HEAD_BYTES of the content; fewer if a damaged file cannot be unpacked."""
        start = b""
        try:
            with self._opened() as file:
                while len(start) < HEAD_BYTES and (part := file.read1(8192)):
                    start += part
        except _DAMAGED:
            pass
        return start[:HEAD_BYTES]

    @functools.cached_property
    def head(self) -> bytes:
        """The `beginning`; if it is text, cleaned as in `blocks`."""
        text = b"".join(log_text.in_utf8([self.beginning]))
        return self.beginning if is_binary(text) else self._plain(text)

    @property
    def head_text(self) -> str:
        """`head` as text; bytes that are not UTF-8 become U+FFFD."""
        return self.head.decode("utf-8", "replace")

    def with_head(self, lines: bytes) -> "LogFile":
        """The same log with other lines as its `head`, for `recognise`."""
        other = LogFile(self.path)
        other.head = lines
        return other

    def with_bars(self) -> "LogFile":
        """The same log with each writing of a progress bar as a line."""
        other = LogFile(self.path)
        other._plain = log_text.with_bars
        return other

    @functools.cached_property
    def sha256(self) -> str:
        """SHA-256 of the content, as 64 hexadecimal digits.

        Raises:
            LogError: the file cannot be read to its end.
        """
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.hexdigest()

    def chunks(self) -> Iterator[bytes]:
        """Yield the raw content in pieces, for binary formats.

        Raises:
            LogError: the file cannot be read to its end.
        """
        return self._read(lambda file: iter(lambda: file.read(BLOCK_BYTES), b""))

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (number from 1, text without its newline); bytes that are not UTF-8 become U+FFFD.

        Raises:
            LogError: the file cannot be read to its end, or a line is too long.
        """
        for first, block in self.blocks():
            yield from enumerate(block.decode("utf-8", "replace").split("\n")[:-1], start=first)
        if self.unfinished:
            yield self.unfinished, self._last.decode("utf-8", "replace")

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number of the first line, complete lines, cleaned by `log_text.plain`).

        A block has about BLOCK_BYTES. Searching blocks with a pattern is many times faster than
        `lines`. A last line without a newline is left out; see `unfinished`.

        Raises:
            LogError: the file cannot be read to its end, or a line is too long.
        """
        self.unfinished = None
        number, rest = 1, b""
        for chunk in log_text.in_utf8(self.chunks()):
            if self._plain is log_text.with_bars:
                chunk = self._plain(chunk)
            end = chunk.rfind(b"\n") + 1
            rest += chunk[:end] if end else chunk
            if not end:
                rest = log_text.last_writing(rest)
            if len(rest) > MAX_LINE_BYTES:
                raise self._too_long(number)
            if not end:
                continue
            yield number, self._plain(rest)
            number += rest.count(b"\n")
            rest = chunk[end:]
        self._last = self._plain(rest)
        if self._last:
            self.unfinished = number

    def text(self) -> Iterator[bytes]:
        """Yield the content in pieces like `blocks`, including a last line without newline.

        Raises:
            LogError: the file cannot be read to its end, or a line is too long.
        """
        for _, block in self.blocks():
            yield block
        yield self._last

    def error(self, line: int, reason: str) -> LogError:
        """A LogError about one line."""
        return LogError(f"{self.path}, line {line}: {reason}")

    def _too_long(self, line):
        return self.error(line, f"longer than {MAX_LINE_BYTES} bytes: is this a log?")

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
                    if total > MAX_BYTES:
                        raise LogError(f"{self.path}: more than {MAX_BYTES} bytes of log")
                    if total > max(ANY_RATIO_BYTES, MAX_RATIO * size):
                        raise LogError(
                            f"{self.path}: unpacks to more than {MAX_RATIO} times its "
                            f"{size} bytes: is this a log?"
                        )
                    yield part
        except _DAMAGED as error:
            raise LogError(f"{self.path}: damaged gzip after {total} bytes: {error}") from error
