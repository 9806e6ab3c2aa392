"""tests/budget.toml: what the project may weigh."""

import doctest

from tests import weight


def test_the_project_weighs_no_more_than_its_budget():
    weights = weight.weights()
    assert all(value > 0 for value in weights.values())
    over = {name: weights[name] for name, most in weight.budget().items() if weights[name] > most}
    assert not over


def test_lines_of_code_and_lists_of_fields_are_counted_as_the_examples_say():
    assert doctest.testmod(weight) == (0, 2)
