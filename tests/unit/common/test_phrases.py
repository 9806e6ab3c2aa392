"""phrases: reasons that differ in numbers only are merged."""

import pytest

from dlbench.common import phrases


@pytest.mark.parametrize(
    ("many", "one"),
    [
        (["171.2 items/s, 186 by the median step"] * 2, "171.2 items/s, 186 by the median step"),
        (["171.2 items/s, 186 by", "99 items/s, 120.5 by"], "99 to 171.2 items/s, 120.5 to 186 by"),
        (["1e-3 s", "2e-4 s", "5 s"], "2e-4 to 5 s"),
        (["bound to 10.0.0.1", "bound to 10.0.0.2"], "bound to \u2026"),
        (["no number"], "no number"),
    ],
)
def test_numbers_become_the_least_and_the_greatest(many, one):
    assert len({phrases.without_numbers(words) for words in many}) == 1
    assert phrases.merge(many) == one
