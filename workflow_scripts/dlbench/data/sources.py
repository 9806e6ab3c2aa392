"""Sources of records: arrays in memory, for small datasets, and text in pieces.

Text is one long sequence of tokens, from which items of any length are cut. A record is one piece:
its tokens as bytes, and its number, since shards are shuffled. The trainer joins the pieces again
(dlbench/trainer/reading/).
"""

import codecs
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import own_code


class WrongRecord(Error):
    """A record cannot be converted without changing its meaning; the message names it."""


def as_bytes(array: Any, low: float, high: float) -> Any:
    """Scale values linearly to uint8: `low` or less becomes 0, `high` or more becomes 255.

    `array`: its first axis counts records. Raises WrongRecord: a value is not finite, e.g. because
    a cell of the file is empty.
    """
    import numpy as np

    for index in np.flatnonzero(~np.isfinite(array).all(axis=tuple(range(1, array.ndim)))):
        values = array[index].ravel()
        position = int(np.flatnonzero(~np.isfinite(values))[0])
        raise WrongRecord(
            f"record {index} of {len(array)}, counted from 0: expected finite numbers, found "
            f"{values[position]} as number {position}, counted from 0: is a cell of the file empty?"
        )
    return np.rint(255 * (np.clip(array, low, high) - low) / (high - low)).astype(np.uint8)


class ArraySource:
    """Images of one shape, each with a label or a target of its own shape.

    Args:
        splits: maps `train` and `validation` to (images, targets), arrays whose first axis
            counts records; targets are labels of shape (n,), which must be whole numbers of any
            dtype, or masks of shape (n, ...).
    """

    def __init__(self, splits: Mapping[str, tuple[Any, Any]]) -> None:
        self._splits = splits

    def count(self, split: str) -> int:
        return len(self._splits[split][0])

    def location(self, split: str, index: int) -> str:
        return f"{split} record {index}"

    def features(self, split: str, index: int) -> dict[str, Any]:
        images, targets = self._splits[split]
        image, target = images[index], targets[index]
        height, width, channels = image.shape
        features = {
            "image/encoded": image.tobytes(),
            "image/format": "RAW",
            "image/height": height,
            "image/width": width,
            "image/channels": channels,
        }
        if target.ndim:
            return features | {"image/mask": target.tobytes()}
        return features | {"image/class/label": _label(target, self.location(split, index))}


def _label(target, where):
    if not float(target).is_integer():
        raise WrongRecord(
            f"{where}, counted from 0: expected a whole number as label, found {target}: is the "
            "label in another column, or is this a target that is no class?"
        )
    return int(target)


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

    Byte order marks are removed, and ends of lines become newlines. Raises Error: there is no
    folder or no text, or a file is not UTF-8.
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
