"""Read a log of another program, plain or gzip-ed, and clean its text.

- Size, encoding and end are checked. UTF-16 and UTF-32, which PowerShell's `>` writes, are
  recognised by their byte order mark; UTF-16 without one by the zeros in every other byte.
- Escape sequences (colours, movements of the cursor) are removed.
- Of a line that carriage returns overwrote, the last text counts, as on a terminal. A progress bar
  (tqdm's) before the text of a line is removed.
"""

import codecs
import functools
import gzip
import hashlib
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from dlbench import Error

BOMS = (  # UTF-32 first: its mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
INSPECTED_BYTES = 4096  # at the beginning, to detect the encoding
ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,2048}(?:\x07|\x1b\\)"
    rb"|[()*+][0-9A-Z]|[@-Z\\^_=>])"
)
OVERWRITTEN = re.compile(rb"^[^\n]*\r(?=[^\n])", re.M)
_counter = rb" ?[\d.]{1,12}[kMGTP]?(?:/[\d.?]{1,12}[kMGTP]?)? \[[^\]\n]{0,200}\]"
BAR = re.compile(
    rb"^[^\n%|]{0,100}\d{1,3}%\|[^|\n]{0,400}\|" + _counter + rb"|"
    rb"^(?:[^\n\[]{0,100}: )?\d{1,12}it \[\d\d:\d\d[^\]\n]{0,100}\]",
    re.M,
)


def encoding(beginning: bytes) -> str:
    """Python's name of a text's encoding, detected in its first bytes; UTF-8 by default.

    >>> encoding("step 1".encode("utf-16")), encoding("step 1".encode("utf-16-be"))
    ('utf-16', 'utf-16-be')
    >>> encoding(b"step 1"), encoding(bytes(8))
    ('utf-8', 'utf-8')
    """
    start = beginning[:INSPECTED_BYTES]
    half = len(start) // 2
    zeros = [start[offset::2].count(0) for offset in (0, 1)]
    for mark, name in BOMS:
        # UTF-16 and UTF-32 text of logs has zeros; a mark without zeros is a coincidence.
        if start.startswith(mark) and (name.startswith("utf-8") or max(zeros) > half // 4):
            return name
    # Every other byte is mostly zero and the rest never: only UTF-16 looks like this.
    if half > 2 and min(zeros) == 0 and max(zeros) > 0.7 * half:
        return "utf-16-be" if zeros[0] else "utf-16-le"
    return "utf-8"


def in_utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks of a text, converted to UTF-8, without byte order mark.

    Invalid bytes become U+FFFD; text that is UTF-8 already is not checked.
    """
    chunks = iter(chunks)
    first = next(chunks, b"")
    name = encoding(first)
    if name.startswith("utf-8"):
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(name)("replace")
    for chunk in itertools.chain([first], chunks):
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def plain(block: bytes) -> bytes:
    r"""Remove escape sequences, overwritten text and progress bars from complete lines.

    >>> plain(b"\x1b[32mstep\x1b[0m 1\r\n 10%|#  | 1/9 [00:01]\r 20%|## | 2/9 [00:02]step 2\n")
    b'step 1\nstep 2\n'
    """
    if b"\x1b" in block:
        block = ESCAPES.sub(b"", block)
    if b"\r" in block:
        block = re.sub(rb"\r+(?=\n|\Z)", b"", block)
        if b"\r" in block:
            block = OVERWRITTEN.sub(b"", block)
    if b"%|" in block or b"it [" in block:
        block = BAR.sub(b"", block)
    return block


def last_writing(line: bytes) -> bytes:
    """The end of an incomplete line, from the last carriage return that overwrote it.

    >>> last_writing(b"10%\\r20%\\r"), last_writing(b"10%")
    (b'20%\\r', b'10%')
    """
    return line[line.rstrip(b"\r").rfind(b"\r") + 1 :]


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
        self._last = b""

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
        text = b"".join(in_utf8([self.beginning]))
        return self.beginning if is_binary(text) else plain(text)

    @property
    def head_text(self) -> str:
        """`head` as text; bytes that are not UTF-8 become U+FFFD."""
        return self.head.decode("utf-8", "replace")

    def with_head(self, lines: bytes) -> "LogFile":
        """The same log with other lines as its `head`, for `recognise`."""
        other = LogFile(self.path)
        other.head = lines
        return other

    @functools.cached_property
    def sha256(self) -> str:
        """SHA-256 of the content, as 64 hexadecimal digits.

        A LogError if the file cannot be read to its end.
        """
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.hexdigest()

    def chunks(self) -> Iterator[bytes]:
        """Yield the raw content in pieces, for binary formats.

        A LogError if the file cannot be read to its end.
        """
        return self._read(lambda file: iter(lambda: file.read(BLOCK_BYTES), b""))

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (number from 1, text without its newline); bytes that are not UTF-8 become U+FFFD.

        A LogError if the file cannot be read to its end, or a line is too long.
        """
        for first, block in self.blocks():
            yield from enumerate(block.decode("utf-8", "replace").split("\n")[:-1], start=first)
        if self.unfinished:
            yield self.unfinished, self._last.decode("utf-8", "replace")

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number of the first line, complete lines, cleaned by `plain`).

        A block has about BLOCK_BYTES. Searching blocks with a pattern is many times faster than
        `lines`. A last line without a newline is left out; see `unfinished`.

        Raises LogError: the file cannot be read to its end, or a line is too long.
        """
        self.unfinished = None
        number, rest = 1, b""
        for chunk in in_utf8(self.chunks()):
            end = chunk.rfind(b"\n") + 1
            rest += chunk[:end] if end else chunk
            if not end:
                rest = last_writing(rest)
            if len(rest) > MAX_LINE_BYTES:
                raise self.error(number, f"longer than {MAX_LINE_BYTES} bytes: is this a log?")
            if not end:
                continue
            yield number, plain(rest)
            number += rest.count(b"\n")
            rest = chunk[end:]
        self._last = plain(rest)
        if self._last:
            self.unfinished = number

    def text(self) -> Iterator[bytes]:
        """Yield the content in pieces like `blocks`, including a last line without newline.

        A LogError if the file cannot be read to its end, or a line is too long.
        """
        for _, block in self.blocks():
            yield block
        yield self._last

    def error(self, line: int, reason: str) -> LogError:
        """A LogError about one line."""
        return LogError(f"{self.path}, line {line}: {reason}")

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
