"""name_patterns: regular expressions for sets of names."""

import re

import pytest

from dlbench.common import name_patterns


@pytest.mark.parametrize("names", [["a"], ["ab", "abc", "b"], ["x.1", "x+1"], ["", "a"]])
def test_a_pattern_matches_its_names_and_no_others(names):
    pattern = name_patterns.any_of(names)
    others = ["", "a", "ab", "abc", "abcd", "b", "x.1", "x+1", "xx1"]
    assert [one for one in others if re.fullmatch(pattern, one)] == sorted(names, key=others.index)


def test_without_names_nothing_matches():
    assert not re.match(name_patterns.any_of([]), "")
