"""Text as one long sequence of tokens, stored in pieces, from which items of any length are cut.

A record is one piece: its tokens as bytes, and its number, since shards are shuffled. The trainer
joins the pieces again (dlbench/trainer/reading/text.py).
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
HELD_OUT_SHARE = 10  # one tenth of a text is held out


class Pieces:
    """A Source of text.

    Args:
        texts: the tokens of each split, as bytes.
        token_bytes: size of one token, by READER's `dtype`.
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
    """The number of pieces of a text with a number of tokens.

    >>> pieces(4096), pieces(4097)
    (1, 2)
    """
    return -(-tokens // PIECE_TOKENS)


def unigram_entropy(text: bytes) -> float:
    """Entropy in nats of the distribution of the bytes of a text.

    This is the lowest loss of a model that knows only the frequency of each byte.

    >>> round(unigram_entropy(b"abab"), 6)
    0.693147
    """
    counts = Counter(text).values()
    total = sum(counts)
    return -sum(count / total * math.log(count / total) for count in counts)


def read(folder: Path | str) -> bytes:
    """The concatenated text of all files *.txt of a folder.

    Byte order marks are removed, and ends of lines become newlines.

    Raises:
        Error: there is no folder or no text, or a file is not UTF-8.
    """
    folder, contents = Path(folder), []
    if not folder.is_dir():
        hint = own_code.search_hint(folder)
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
    """Split a text: its last tenth is held out for validation."""
    end = len(text) - len(text) // HELD_OUT_SHARE
    return {"train": text[:end], "validation": text[end:]}
