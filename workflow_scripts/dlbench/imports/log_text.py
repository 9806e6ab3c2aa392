"""Clean the text of a log: convert it to UTF-8, and remove what is meant for terminals.

- UTF-16 and UTF-32, which PowerShell's `>` writes, are recognised by their byte order mark; UTF-16
  without one by the zeros in every other byte.
- Escape sequences (colours, movements of the cursor) are removed.
- Of a line that carriage returns overwrote, the last text counts, as on a terminal.
- A progress bar (tqdm's) before the text of a line is removed.
"""

import codecs
import itertools
import re
from collections.abc import Iterable, Iterator

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


def with_bars(block: bytes) -> bytes:
    r"""A text without escape sequences, whose progress bars have a line for each writing.

    >>> with_bars(b" 1/9 [00:01]\r\x1b[A 2/9 [00:02]\r\n")
    b' 1/9 [00:01]\n 2/9 [00:02]\n'
    """
    return ESCAPES.sub(b"", block).replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def last_writing(line: bytes) -> bytes:
    """The end of an incomplete line, from the last carriage return that overwrote it.

    >>> last_writing(b"10%\\r20%\\r"), last_writing(b"10%")
    (b'20%\\r', b'10%')
    """
    return line[line.rstrip(b"\r").rfind(b"\r") + 1 :]
