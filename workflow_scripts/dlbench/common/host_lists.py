"""Lists of hosts as schedulers write them."""

import itertools
import math
import re

from dlbench import Error

MAX_HOSTS = 100_000


def expand_hosts(text: str) -> list[str]:
    """The names in Slurm's list of nodes, as `scontrol show hostnames` prints them.

    Raises:
        Error: the list is not written as Slurm writes it, or has more than MAX_HOSTS names.

    >>> expand_hosts("gpu[01-03,7],login")
    ['gpu01', 'gpu02', 'gpu03', 'gpu7', 'login']
    """
    parts = [_segments(part) for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\]?)+", text)]
    count = sum(math.prod(sum(map(_length, spans)) for spans in segments) for segments in parts)
    if count > MAX_HOSTS:
        raise Error(f"{text[:100]} names {count} nodes; expected at most {MAX_HOSTS}")
    return [
        "".join(pieces)
        for segments in parts
        for pieces in itertools.product(*(map(_expanded, segments)))
    ]


def _segments(part):
    """The segments of one element of a list of nodes, which may have several brackets.

    Returns:
        A list of lists of ranges: (text before the number, first, last, digits).
    """
    segments, rest = [], part
    while rest:
        before, bracket, rest = rest.partition("[")
        if not bracket:
            segments.append([(before, None, None, 0)])
            break
        ranges, closing, rest = rest.partition("]")
        pieces = [re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", piece) for piece in ranges.split(",")]
        spans = [
            (int(piece[1]), int(piece[2] or piece[1]), len(piece[1])) for piece in pieces if piece
        ]
        if not closing or None in pieces or any(last < first for first, last, _ in spans):
            raise Error(f"expected a list of nodes as in n[1-3,5], found {part!r}")
        segments.append([(before, *span) for span in spans])
    return segments


def _length(span):
    _, first, last, _ = span
    return 1 if first is None else last - first + 1


def _expanded(spans):
    """The texts in some ranges."""
    for before, first, last, digits in spans:
        if first is None:
            yield before
        else:
            yield from (before + str(n).zfill(digits) for n in range(first, last + 1))
