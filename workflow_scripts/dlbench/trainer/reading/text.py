"""Text: windows of any length, cut from one sequence of tokens, and the masking of their tokens.

Items do not overlap. A window is an item and one more token, the target of the item's last token,
which is also the first token of the next window. Tokens after the last whole window are left out.

For masked language models some tokens are masked:

- J. Devlin et al. (2019). BERT. NAACL, arXiv:1810.04805, section 3.1 and appendix A.1: 15 % of the
  tokens are chosen; 80 % of these are replaced by a mask, 10 % by another token, and 10 % stay; the
  loss is that of the chosen ones.
- Here each window has the same number of chosen tokens, so that all windows have equal weight.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from dlbench import Error
from dlbench.common import tfrecord

SHARE = 0.15
IGNORED = -1  # the target of a token that is not masked
HELD_OUT_SEED = 0


def load(name: str, paths: Iterable[Path], dtype: str) -> np.ndarray:
    """All tokens of a split, in their order, from the shards of a dataset.

    Raises Error: a record is not a piece of text, or one is missing.
    """
    pieces = {}
    for path in paths:
        with open(path, "rb") as file:
            for _, payload in tfrecord.payloads(file, path):
                example = tfrecord.parse_example(payload, name)
                if not {"number", "tokens"} <= example.keys():
                    features = ", ".join(sorted(example))
                    raise Error(f"{path}: expected pieces of text, found records of {features}")
                pieces[example["number"][0]] = example["tokens"][0]
    if sorted(pieces) != list(range(len(pieces))):
        raise Error(f"{name}: pieces of its text are missing: convert the dataset again")
    return np.frombuffer(b"".join(pieces[number] for number in range(len(pieces))), dtype)


def count(tokens: int, length: int) -> int:
    """Number of items of `length` tokens in a text.

    >>> count(tokens=9, length=4), count(tokens=8, length=4)
    (2, 1)
    """
    return max(0, (tokens - 1) // length)


def windows(tokens: np.ndarray, indices: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Items by their numbers: the tokens of each, and the token that follows each, int32.

    >>> windows(np.arange(9), np.asarray([1, 0]), length=4)[0].tolist()
    [[4, 5, 6, 7], [0, 1, 2, 3]]
    """
    places = indices[:, None] * length + np.arange(length + 1)
    window_tokens = tokens[places].astype(np.int32)
    return window_tokens[:, :-1], window_tokens[:, 1:]


def masked_count(length: int) -> int:
    """Number of tokens that are chosen for masking in an item of `length` tokens.

    >>> masked_count(128), masked_count(2)
    (19, 1)
    """
    return max(1, round(SHARE * length))


def masked(
    tokens: np.ndarray, random: np.random.Generator, mask: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mask some tokens of items (items, tokens), int32, by a token `mask`, the largest.

    Targets are the true tokens there, and IGNORED elsewhere.
    """
    ranks = random.random(tokens.shape).argsort(1).argsort(1)
    chosen = ranks < masked_count(tokens.shape[1])
    kind, other = random.random(tokens.shape), random.integers(mask, size=tokens.shape)
    replaced = np.where(kind < 0.8, mask, np.where(kind < 0.9, other, tokens))
    inputs = np.where(chosen, replaced, tokens).astype(np.int32)
    return inputs, np.where(chosen, tokens, IGNORED).astype(np.int32)
