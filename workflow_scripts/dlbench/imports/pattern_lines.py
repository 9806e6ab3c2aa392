"""Match many lines of a log with a pattern at once, by RE2 in Arrow, and parse their numbers.

RE2 takes a time linear in the length of a line for every pattern, so none can hang an import.
Patterns are those of dlbench/study/log_patterns.py.
"""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dlbench.imports import log_values

THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
PRINTED = re.compile(r"[-+]?[\d,]{1,20}(?:\.\d{0,20})?")
SAMPLED = 100  # texts whose decimals are counted
SUFFIXED = re.compile(r"(.*[\d.])\s?([A-Za-zµ]{1,3})", re.S)
SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
CLOCK = re.compile(r"(?:\d{1,9}:)?\d{1,9}:\d\d(?:\.\d{1,9})?")


def split(block: bytes) -> pa.StringArray:
    """The lines of a block that ends with a newline, without their newlines.

    >>> split(b"a\\n\\nbc\\n").to_pylist()
    ['a', '', 'bc']
    """
    if not block.isascii():
        block = block.decode("utf-8", "replace").encode()
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    text = block.replace(b"\n", b"")
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(text))


def matching(lines: pa.StringArray, pattern: str) -> np.ndarray:
    """The positions of the lines that a pattern matches anywhere."""
    return np.flatnonzero(pc.match_substring_regex(lines, pattern).to_numpy(zero_copy_only=False))


def groups(lines: pa.StringArray, pattern: str) -> tuple[np.ndarray, dict[str, pa.StringArray]]:
    """(positions of the lines that match, texts of each named group in them).

    >>> rows, texts = groups(pa.array(["loss 2.5", "done", "loss 2"]), r"loss (?P<loss>\\S+)")
    >>> rows.tolist(), texts["loss"].to_pylist()
    ([0, 2], ['2.5', '2'])
    """
    found = pc.extract_regex(lines, pattern)
    valid = found.is_valid()
    rows = np.flatnonzero(valid.to_numpy(zero_copy_only=False))
    if len(rows) < len(found):
        found = found.filter(valid)
    names = [found.type.field(place).name for place in range(found.type.num_fields)]
    return rows, dict(zip(names, found.flatten(), strict=True))


def without_labels(
    lines: pa.StringArray, labels: Sequence[str]
) -> tuple[pa.StringArray, pa.StringArray]:
    """(group of the label with which a line begins, or null, and the lines without it).

    `labels`: patterns of different labels with one group each.

    >>> ranks, rest = without_labels(pa.array(["[3] a", "b"]), [r"^\\[(?P<rank>\\d+)\\] "])
    >>> ranks.to_pylist(), rest.to_pylist()
    (['3', None], ['a', 'b'])
    """
    ranks, rest = pa.nulls(len(lines), pa.string()), lines
    for label in labels:
        if len(matching(lines, label)):
            ranks = pc.coalesce(ranks, pc.extract_regex(lines, label).flatten()[0])
            rest = pc.replace_substring_regex(rest, label, "", max_replacements=1)
    return ranks, rest


def only_group(line: str, pattern: str) -> str:
    """The text of the only group of a pattern, which need not have a name, in a line that matches.

    >>> only_group("Avg bus bandwidth : 4.25 GB/s", r"bandwidth\\s*:\\s*(\\S+)")
    '4.25'
    """
    whole = rf"(?s)^.*?(?:{pattern}).*$"
    return pc.replace_substring_regex(pa.array([line]), whole, r"\1")[0].as_py()


def records(lines: pa.StringArray, starts: np.ndarray) -> pa.StringArray:
    """Lines joined by spaces to the records that begin at some positions, of which 0 is the first.

    >>> records(pa.array(["step 1", "loss 2", "step 2"]), np.array([0, 2])).to_pylist()
    ['step 1 loss 2', 'step 2']
    """
    ends = pa.array(np.append(starts, len(lines)), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(ends, lines), " ")


def numbers(texts: pa.StringArray, factors: Mapping[str, float] = SCALES) -> np.ndarray:
    """Texts as floats; nan of one that is no number.

    >>> numbers(pa.array(["1e3", "1,024", "", "338K", "nan", "n/a"])).tolist()
    [1000.0, 1024.0, nan, 338000.0, nan, nan]
    >>> numbers(pa.array(["3ms", "0.5 s", "1:02:03", "5"]), SECONDS).tolist()
    [0.003, 0.5, 3723.0, nan]
    """
    try:
        if factors is SCALES:
            return pc.cast(texts, pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        pass
    return np.array([number(text, factors) for text in texts.to_pylist()], float)


def number(text: str, factors: Mapping[str, float] = SCALES) -> float:
    """A text as a float, which may be infinite; nan if it is no number."""
    if factors is SECONDS and CLOCK.fullmatch(text):
        return sum(float(part) * 60**place for place, part in enumerate(text.split(":")[::-1]))
    digits, factor = _parts(text.strip(), factors)
    value = log_values.real(digits.replace(",", "") if THOUSANDS.fullmatch(digits) else digits)
    return math.nan if value is None or factor is None else value * factor


def _parts(text, factors):
    """(digits, by what they are multiplied; None if that is unknown) of a number."""
    match = SUFFIXED.fullmatch(text)
    return (match[1], factors.get(match[2])) if match else (text, factors.get(""))


def half_digit(texts: pa.StringArray, factors: Mapping[str, float] = SCALES) -> float:
    """Half of the last printed digit of the texts, of the one with most; 0 of none.

    >>> half_digit(pa.array(["45.3", "45.25"])), half_digit(pa.array(["4.5e-05"]))
    (0.005, 5e-07)
    >>> half_digit(pa.array(["338K"])), half_digit(pa.array(["01:02"]), SECONDS)
    (500.0, 0.5)
    """
    sizes = []
    for text in texts.slice(0, SAMPLED).to_pylist():
        text = f"{text.rpartition(':')[2]}s" if ":" in text else text.strip()  # of a clock
        digits, factor = _parts(text, factors)
        mantissa, _, exponent = digits.lower().partition("e")
        power = exponent or "0"
        if factor and PRINTED.fullmatch(mantissa) and re.fullmatch(r"[-+]?\d{1,2}", power):
            decimals = len(mantissa.partition(".")[2])
            sizes.append(0.5 * 10.0 ** (int(power) - decimals) * factor)
    return min(sizes, default=0.0)
