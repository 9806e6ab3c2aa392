"""The examples in docstrings hold; tests/trainer runs those that need a framework."""

import examples
import pytest


@pytest.mark.parametrize("module", examples.modules(of_trainer=False))
def test_the_examples_of_a_module_hold(module):
    assert not examples.failures(module)
