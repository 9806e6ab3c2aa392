"""Text as one long row of tokens, stored in pieces of which windows of any length can be cut.

A record is a piece: its tokens as bytes, and its number, for the shards are shuffled. The trainer
puts the pieces together again (dlbench/trainer/reading/text.py).
"""

import codecs
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import own_code

PIECE_TOKENS = 4096
HELD_OUT_SHARE = 10  # one part in so many


class Pieces:
    """The Source of texts.

    Args:
        texts: the tokens of each split, as bytes.
        token_bytes: of one token, as READER's `dtype` says.
    """

    def __init__(self, texts: Mapping[str, bytes], token_bytes: int = 1):
        self._texts, self._token_bytes = texts, token_bytes

    def count(self, split: str) -> int:
        return pieces(len(self._texts[split]) // self._token_bytes)

    def location(self, split: str, index: int) -> str:
        return f"{split} token {index * PIECE_TOKENS}"

    def features(self, split: str, index: int) -> dict[str, Any]:
        size = PIECE_TOKENS * self._token_bytes
        return {"tokens": self._texts[split][index * size : (index + 1) * size], "number": index}


def pieces(tokens: int) -> int:
    """How many pieces a text of so many tokens has.

    >>> pieces(4096), pieces(4097)
    (1, 2)
    """
    return -(-tokens // PIECE_TOKENS)


def unigram_entropy(text: bytes) -> float:
    """Entropy in nats of the distribution of the bytes of a text.

    Who knows how often each byte occurs, and nothing of those before it, has this loss at best.

    >>> round(unigram_entropy(b"abab"), 6)
    0.693147
    """
    counts = Counter(text).values()
    total = sum(counts)
    return -sum(count / total * math.log(count / total) for count in counts)


def read(folder: Path | str) -> bytes:
    """The text of all files *.txt of a folder, one after another.

    Without byte order marks, and with one newline at the end of a line, however it is written.

    Raises:
        Error: there is no folder or no text, or a file is not UTF-8.
    """
    folder, contents = Path(folder), []
    if not folder.is_dir():
        hint = own_code.where_looked(folder)
        raise Error(f"{folder}: expected a folder with files *.txt, found none{hint}")
    for path in sorted(folder.rglob("*.txt")):
        content = path.read_bytes()
        try:
            content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Error(
                f"{path}: expected text in UTF-8, found the byte {content[error.start]:#04x} at "
                f"place {error.start}; `iconv -t utf-8` converts other encodings"
            ) from error
        content = content.removeprefix(codecs.BOM_UTF8)
        contents.append(content.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
    text = b"\n".join(contents)
    if not text.strip():
        raise Error(f"{folder}: expected files *.txt with text, found {len(contents)} and no text")
    return text


def held_out(text: bytes) -> dict[str, bytes]:
    """A text in two splits: its end is held out."""
    end = len(text) - len(text) // HELD_OUT_SHARE
    return {"train": text[:end], "validation": text[end:]}
