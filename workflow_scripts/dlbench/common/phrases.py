"""Text for people: numbers with units, reasons and hints; patterns of sets of names."""

import difflib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

NUMBER = re.compile(r"(?:\bjob )?\d[\d.]*(?:e[+-]?\d+)?")
# Names that others use, and ours.
SYNONYMS = {"cuda": "gpu", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b")
VARYING_FILES = re.compile(r"\d+ (?:or|to) \d+ more files")  # in a merged reason


def plural(noun: str, count: int) -> str:
    """A noun in the singular for a count of 1, otherwise in the plural: `run`, `runs`."""
    return noun if count == 1 else f"{noun}s"


def counted(count: int, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "run"), counted(3, "run")
    ('1 run', '3 runs')
    """
    return f"{count} {plural(noun, count)}"


def four_digits(value: float) -> str:
    """A number with four significant digits, without an exponent even if it is large.

    >>> four_digits(171.24), four_digits(15063.2)
    ('171.2', '15060')
    """
    return f"{float(f'{value:.4g}'):.15g}"


def short(value: Any) -> str:
    """A value for a sentence, as JSON if it is no text: digests and long texts are cut.

    >>> short(f"sha256:{'0f' * 32}"), short([1])
    ('sha256:0f0f0f0f0f0f...', '[1]')
    """
    text = DIGEST.sub(r"\1...", value if isinstance(value, str) else json.dumps(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def duration(seconds: float) -> str:
    """A duration in a suitable unit.

    >>> duration(100), duration(5000), duration(9000)
    ('100 s', '83.3 min', '2.5 h')
    """
    least = {"h": 7200, "min": 120, "s": 0}
    unit = next(unit for unit, most in least.items() if seconds >= most)
    return f"{seconds / {'h': 3600, 'min': 60, 's': 1}[unit]:.3g} {unit}"


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers as ranges, in the format of the kernel's lists.

    >>> ranges([0, 1, 2, 8, 10, 11])
    '0-2,8,10-11'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def merged(names: Iterable[str], reasons: Sequence[str]) -> list[str]:
    """Reasons, of which those of one name that differ in numbers only are one, as of `merge`.

    >>> merged(["cnn", "cnn", "mlp"], ["9 items/s", "8 items/s", "70 items/s"])
    ['cnn: 8 or 9 items/s', 'cnn: 8 or 9 items/s', 'mlp: 70 items/s']
    """
    groups: dict[tuple[str, str], list[str]] = {}
    keys = [(NUMBER.sub("0", reason), name) for name, reason in zip(names, reasons, strict=True)]
    for key, reason in zip(keys, reasons, strict=True):
        groups.setdefault(key, []).append(reason)
    texts = {key: merge(group) for key, group in groups.items()}
    kinds = Counter(text for text, _ in {(key[0], text) for key, text in texts.items()})
    return [f"{key[1]}: {texts[key]}" if kinds[key[0]] > 1 else texts[key] for key in keys]


def merge(reasons: Sequence[str]) -> str:
    """Merge reasons that differ in their numbers only into one with ranges of numbers.

    >>> merge(["16.5 items/s in 3 steps", "20 items/s in 3 steps"])
    '16.5 to 20 items/s in 3 steps'
    >>> merge(["a.py and 30 more files", "a.py and 31 more files"])
    'a.py and 30 or 31 more files, depending on the run'
    """
    columns = zip(*(NUMBER.findall(reason) for reason in reasons), strict=True)
    ranges = [_range(list(dict.fromkeys(column))) for column in columns]
    merged = NUMBER.sub(lambda _: ranges.pop(0), reasons[0])
    return VARYING_FILES.sub(lambda files: f"{files[0]}, depending on the run", merged)


def _range(numbers):
    if len(numbers) == 1:
        return numbers[0]
    if numbers[0].startswith("job "):
        return f"jobs {', '.join(number.removeprefix('job ') for number in numbers)}"
    try:
        least, most = min(numbers, key=float), max(numbers, key=float)
    except ValueError:  # parts of an address, e.g. 10.0.0.1
        return "\u2026"
    adjacent = least.isdigit() and most.isdigit() and int(most) - int(least) == 1
    return f"{least} {'or' if adjacent else 'to'} {most}"


def did_you_mean(name: object, valid: Iterable[object]) -> str:
    """A hint for error messages: `" (did you mean 'x'?)"`, or `""` if no valid name is similar.

    >>> did_you_mean("CIFAR-10", ["cifar10", "digits"]), did_you_mean("cuda", ["cpu", "gpu"])
    (" (did you mean 'cifar10'?)", " (did you mean 'gpu'?)")
    >>> did_you_mean("batch", ["cache", "batch_per_device"])
    " (did you mean 'batch_per_device'?)"
    """
    plain = {str(value).lower(): str(value) for value in valid}
    word = SYNONYMS.get(str(name).lower(), str(name).lower())
    begun = [value for value in plain if len(word) > 2 and value.startswith(word)]
    near = begun or difflib.get_close_matches(word, plain, n=1)
    return f" (did you mean {plain[near[0]]!r}?)" if near else ""


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
