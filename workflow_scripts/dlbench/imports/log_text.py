"""The text of a log as its program wrote it: in UTF-8, without what terminals and encodings add.

- UTF-16 and UTF-32, as PowerShell's `>` writes, are known by their byte order mark; UTF-16 without
  one by the zeros that every other byte of its text has.
- Escape sequences (colours, movements of the cursor) are left out.
- Of a line that carriage returns wrote over the last writing is taken, as a terminal shows it.
- A progress bar (tqdm's) before the text of a line is left out.
"""

import codecs
import itertools
import re
from collections.abc import Iterable, Iterator

BOMS = (  # UTF-32 first: UTF-16's mark is the beginning of its
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
INSPECTED_BYTES = 4096  # bytes at the beginning that tell the encoding
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
    """The encoding of a text by its first bytes, as Python names it; UTF-8 if nothing says other.

    >>> encoding("step 1".encode("utf-16")), encoding("step 1".encode("utf-16-be"))
    ('utf-16', 'utf-16-be')
    >>> encoding(b"step 1"), encoding(bytes(8))
    ('utf-8', 'utf-8')
    """
    start = beginning[:INSPECTED_BYTES]
    half = len(start) // 2
    zeros = [start[offset::2].count(0) for offset in (0, 1)]
    for mark, name in BOMS:
        # Text of logs has zeros in both; a stray pair of bytes is no mark.
        if start.startswith(mark) and (name.startswith("utf-8") or max(zeros) > half // 4):
            return name
    # Bytes that are never zero beside bytes that mostly are: no other text and no binary has that.
    if half > 2 and min(zeros) == 0 and max(zeros) > 0.7 * half:
        return "utf-16-be" if zeros[0] else "utf-16-le"
    return "utf-8"


def in_utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks of a text in UTF-8 and without its byte order mark.

    What is not valid becomes U+FFFD, unless the text is in UTF-8 already.
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
    r"""Whole lines without escape sequences, without what was written over, without progress bars.

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
    """The end of a line without its newline, from where it was written over for the last time.

    >>> last_writing(b"10%\\r20%\\r"), last_writing(b"10%")
    (b'20%\\r', b'10%')
    """
    return line[line.rstrip(b"\r").rfind(b"\r") + 1 :]
