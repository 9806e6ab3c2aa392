"""phrases: reasons that differ in numbers only are merged."""

import pytest

from dlbench.common import phrases


@pytest.mark.parametrize(
    ("many", "one"),
    [
        (["171.2 items/s, 186 at the median"] * 2, "171.2 items/s, 186 at the median"),
        (["171.2 items/s, 186 by", "99 items/s, 120.5 by"], "99 to 171.2 items/s, 120.5 to 186 by"),
        (["1e-3 s", "2e-4 s", "5 s"], "2e-4 to 5 s"),
        (["4 steps", "3 steps"], "3 or 4 steps"),
        (["4 steps", "3 steps", "5 steps"], "3 to 5 steps"),
        (["3.0 s", "4 s"], "3.0 to 4 s"),
        (["3 more files", "7 more files"], "3 to 7 more files, depending on the run"),
        (["x and 3 more files"] * 2, "x and 3 more files"),
        (["bound to 10.0.0.1", "bound to 10.0.0.2"], "bound to \u2026"),
        (["no number"], "no number"),
    ],
)
def test_numbers_become_the_least_and_the_greatest(many, one):
    assert phrases.merged([""] * len(many), many) == [one] * len(many)


def test_numbers_of_two_models_are_kept_apart_and_what_is_equal_is_said_once():
    reasons = ["9 items/s", "not here", "70 items/s", "not here", "8 items/s"]
    cnn, mlp = "cnn: 8 or 9 items/s", "mlp: 70 items/s"
    found = phrases.merged(["cnn", "cnn", "mlp", "mlp", "cnn"], reasons)
    assert found == [cnn, "not here", mlp, "not here", cnn]
