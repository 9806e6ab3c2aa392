"""Patterns for some names among all that there could be."""

import itertools
import re


def any_of(names: list[str]) -> str:
    """A pattern that matches these names, which differ, and nothing else.

    It goes on from letter to letter. A plain list of names is tried from its beginning for each
    file that is matched, so that the time for n of n names would grow as n squared.
    """
    if not names:
        return "(?!)"
    names = sorted(names)
    ends = zip(names[0], names[-1], strict=False)  # what these two share, all share
    beginning = "".join(one for one, _ in itertools.takewhile(lambda two: two[0] == two[1], ends))
    rests = [name.removeprefix(beginning) for name in names]
    parts = [list(part) for _, part in itertools.groupby(rests, key=lambda rest: rest[:1])]
    others = f"(?:{'|'.join(map(any_of, parts))})" if len(names) > 1 else ""
    return f"{re.escape(beginning)}{others}"
