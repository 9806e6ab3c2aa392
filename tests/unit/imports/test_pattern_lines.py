"""pattern_lines: lines are matched by Arrow's RE2 as Python's re would match them."""

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.imports import console
from dlbench.imports.pattern_reading import pattern_lines
from support.logs.rewritten_logs import DATES, RANKS


@given(st.lists(st.text(st.characters(exclude_characters="\n"), max_size=20), min_size=1))
def test_a_block_is_split_at_its_newlines(texts):
    block = "".join(f"{text}\n" for text in texts).encode("utf-8", "replace")
    expected = block.decode("utf-8", "replace").split("\n")[:-1]
    assert pattern_lines.split(block).to_pylist() == expected


def test_bytes_that_are_no_text_are_replaced():
    assert pattern_lines.split(b"a\xff\nb\n").to_pylist() == ["a\ufffd", "b"]


@given(st.lists(st.from_regex(r"[a-c]{0,3}(loss|lass) ?[0-9.e+-]{0,4}[a-c]?", fullmatch=True)))
def test_groups_are_those_of_re(texts):
    pattern = r"^.*?loss ?(?P<loss>[\d.]+)(?:a|(?P<more>b))?"
    rows, groups = pattern_lines.groups(pa.array(texts, pa.string()), pattern)
    found = [(row, match) for row, text in enumerate(texts) if (match := re.search(pattern, text))]
    assert rows.tolist() == [row for row, _ in found]
    for name, column in groups.items():
        assert column.to_pylist() == [match[name] or "" for _, match in found]


@pytest.mark.parametrize("prefix", [*DATES, *RANKS])
def test_prefixes_are_recognised_as_by_the_reader_of_consoles(prefix):
    line = f"{prefix.decode()}step 1"
    assert len(pattern_lines.matching(pa.array([line]), console.PREFIXED)) == 1
    ranks, rest = pattern_lines.without_labels(pa.array([line]), console.LABELS)
    rank, text = console.split(line)
    if prefix in RANKS and text == rest[0].as_py():
        assert ranks[0].as_py() == rank


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,234.5", 1234.5), ("-2e-3", -0.002), ("1,2", None), ("5ms", None), ("inf", float("inf"))],
)
def test_numbers_are_read_as_printed(text, value):
    (read,) = pattern_lines.numbers(pa.array([text]))
    assert read == value if value is not None else np.isnan(read)


def test_a_pattern_on_which_re_would_hang_takes_no_time():
    lines = pa.array(["a" * 100_000] * 10)
    assert not len(pattern_lines.matching(lines, r"(?:a+)+b"))


def test_the_last_digit_of_long_and_strange_numbers_is_no_error():
    assert pattern_lines.half_digit(pa.array(["1e400", "nan", "", "12"])) == 0.5
