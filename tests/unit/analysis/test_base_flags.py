"""base_flags: in what a row differs from its base."""

import pytest

from dlbench.analysis import base_flags


def test_a_base_says_in_what_it_differs():
    row = dict.fromkeys((*base_flags.BASE_KEYS, "batch_per_device", "global_batch"), "same")
    assert base_flags.base_mismatch(row, row) == []
    assert base_flags.base_mismatch(row, row | {"strategy": "other"}) == ["strategy"]
    assert base_flags.base_mismatch(row | {"mode": "train"}, row | {"mode": "input"}) == ["mode"]
    other_batch = row | {"batch_per_device": 32}
    assert base_flags.base_mismatch(row, other_batch) == ["batch_per_device"]
    assert base_flags.base_mismatch(row, other_batch, "global_batch") == []


@pytest.mark.parametrize("absent", [None, float("nan")])
def test_values_that_both_lack_do_not_differ(absent):
    row = dict.fromkeys((*base_flags.BASE_KEYS, "batch_per_device"), "same")
    without = row | {"data_sha256": absent}
    assert base_flags.base_mismatch(without, without) == []
    assert base_flags.base_mismatch(without, row) == ["data_sha256"]
