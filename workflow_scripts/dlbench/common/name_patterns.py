"""Regular expressions for sets of names."""

import itertools
import re


def any_of(names: list[str]) -> str:
    """A pattern that matches exactly these names, which must differ.

    It branches letter by letter, as a trie. A plain alternation is tried from its start for each
    text, so that the time for n texts and n names would grow as n squared.
    """
    if not names:
        return "(?!)"
    names = sorted(names)
    pairs = zip(names[0], names[-1], strict=False)  # the common prefix of these two is that of all
    equal = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    prefix = "".join(letter for letter, _ in equal)
    rests = [name.removeprefix(prefix) for name in names]
    groups = [list(group) for _, group in itertools.groupby(rests, key=lambda rest: rest[:1])]
    others = f"(?:{'|'.join(map(any_of, groups))})" if len(names) > 1 else ""
    return f"{re.escape(prefix)}{others}"
