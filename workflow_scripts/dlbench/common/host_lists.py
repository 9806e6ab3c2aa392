"""Lists of hosts as schedulers write them."""

import re

from dlbench import Error


def expand_hosts(text: str) -> list[str]:
    """The names in Slurm's list of nodes, as `scontrol show hostnames` prints them.

    Raises:
        Error: the list is not written as Slurm writes it.

    >>> expand_hosts("gpu[01-03,7],login")
    ['gpu01', 'gpu02', 'gpu03', 'gpu7', 'login']
    """
    names = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\]?)+", text):
        names += _expanded(part)
    return names


def _expanded(part):
    """The names in one element of a list of nodes, which may have several brackets."""
    before, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    ranges, closing, after = rest.partition("]")
    numbers = []
    for piece in ranges.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", piece)
        last = int(match[2] or match[1]) if match else -1
        if not closing or not match or last < int(match[1]):
            raise Error(f"expected a list of nodes as in n[1-3,5], found {part!r}")
        numbers += [str(number).zfill(len(match[1])) for number in range(int(match[1]), last + 1)]
    return [before + number + end for number in numbers for end in _expanded(after)]
