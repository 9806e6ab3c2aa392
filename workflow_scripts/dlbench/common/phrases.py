"""Reasons in words, of many runs: those that differ in numbers only are one."""

import difflib
import re

NUMBER = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?")


def skeleton(words):
    """What reasons that are one have in common."""
    return NUMBER.sub("0", words)


def together(many):
    """Reasons of one skeleton as one, with the least and the greatest of each number.

    >>> together(["16.5 items/s in 3 steps", "20 items/s in 3 steps"])
    '16.5 to 20 items/s in 3 steps'
    """
    columns = zip(*(NUMBER.findall(words) for words in many), strict=True)
    ranges = [_range(list(dict.fromkeys(column))) for column in columns]
    return NUMBER.sub(lambda _: ranges.pop(0), many[0])


def _range(numbers):
    if len(numbers) == 1:
        return numbers[0]
    try:
        return f"{min(numbers, key=float)} to {max(numbers, key=float)}"
    except ValueError:  # as in an address
        return "\u2026"


def nearest(name, valid):
    """A hint for error messages: `" (did you mean 'x'?)"`, or `""` where nothing is near.

    >>> nearest("CIFAR-10", ["cifar10", "digits"])
    " (did you mean 'cifar10'?)"
    """
    plain = {str(value).lower(): str(value) for value in valid}
    near = difflib.get_close_matches(str(name).lower(), plain, n=1)
    return f" (did you mean {plain[near[0]]!r}?)" if near else ""
