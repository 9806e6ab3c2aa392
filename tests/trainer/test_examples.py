"""The examples in docstrings of modules that need a framework."""

import pytest

from support.project import examples


@pytest.mark.ci
@pytest.mark.parametrize("module", examples.modules(of_trainer=True))
def test_the_examples_of_a_module_hold(module):
    assert not examples.failures(module)
