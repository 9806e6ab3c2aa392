"""Lists of hosts as schedulers write them."""

import itertools
import math
import re
from collections.abc import Iterable

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


def compact_hosts(names: Iterable[str]) -> str:
    """Names of nodes as a list that Slurm's --nodelist and --exclude take, each once, in order.

    Only digits at the end of a name become ranges, as not all of Slurm's programs take others.

    Raises:
        Error: a name has other characters than names of nodes have.

    >>> compact_hosts(["gpu10", "gpu9", "gpu11", "login", "gpu9"])
    'gpu[9-11],login'
    """
    numbered: dict[str, list[str]] = {}
    for name in set(names):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise Error(f"expected the name of a node as in n1, found {name[:100]!r}")
        match = re.fullmatch(r"(.*?[^0-9])([0-9]{1,18})", name)
        prefix, digits = match.groups() if match else (name, "")
        numbered.setdefault(prefix, []).append(digits)
    return ",".join(_compacted(prefix, numbered[prefix]) for prefix in sorted(numbered))


def _compacted(prefix, numbers):
    """The names of one prefix, of which one may have no number."""
    alone, ranges = [prefix] if "" in numbers else [], []
    for digits in sorted(set(numbers) - {""}, key=lambda digits: (int(digits), len(digits))):
        # A range counts on from its first number, which says how wide all are.
        if ranges and digits == str(int(ranges[-1][1]) + 1).zfill(len(ranges[-1][0])):
            ranges[-1][1] = digits
        else:
            ranges.append([digits, digits])
    pieces = [first if first == last else f"{first}-{last}" for first, last in ranges]
    several = len(pieces) > 1 or "-" in "".join(pieces)
    text = f"[{','.join(pieces)}]" if several else "".join(pieces)
    return ",".join([*alone, *([prefix + text] if pieces else [])])
