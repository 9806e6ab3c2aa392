"""patterns: names of runs as one regular expression."""

import re

from dlbench.common import patterns


def test_a_pattern_matches_its_names_and_nothing_else():
    names = ["lenet5-b4", "lenet5-b8", "lenet5-b8.1", "cnn12", "lenet5"]
    pattern = patterns.any_of(names)
    others = ["", "lenet", "lenet5-b", "lenet5-b8x1", "cnn12-b4", "len.t5"]
    assert all(re.fullmatch(pattern, name) for name in names)
    assert not any(re.fullmatch(pattern, name) for name in others)
    assert not re.fullmatch(patterns.any_of([]), "")


def test_a_pattern_of_many_names_is_as_short_as_what_they_share():
    names = [f"resnet50-b{number}" for number in range(1000)]
    assert patterns.any_of(names).count("resnet50") == 1
