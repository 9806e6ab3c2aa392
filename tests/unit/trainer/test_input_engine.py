"""input_engine: steps that take batches, with an engine in plain Python."""

import itertools
from types import SimpleNamespace

import pytest

from dlbench.trainer.input_engine import reading_only


class Reading:
    """An engine that can only read; what would need its model is not there."""

    strategy, gpu_count = SimpleNamespace(rank=0), 0
    records, data_sha256, item_shape = 100, "of-data", (28, 28, 1)

    def __init__(self):
        self.taken = []

    def host_batches(self, first):
        for number in itertools.count(first + 1):
            self.taken.append(number)
            yield number


@pytest.mark.parametrize("first", [0, 7])
def test_each_step_takes_one_batch_after_the_one_that_is_taken_before_the_first(first):
    made = reading_only(Reading)()
    made.build()
    made.begin(first)
    made.trace()
    assert made.taken == [first + 1]
    assert made.window(first + 1, first + 3, 10) == [0.0, 0.0, 0.0]
    assert made.taken == list(range(first + 1, first + 5))


def test_it_has_the_data_of_its_framework_and_no_model():
    made = reading_only(Reading)()
    assert (made.records, made.data_sha256, made.item_shape) == (100, "of-data", (28, 28, 1))
    assert (made.parameters(), made.attention(), made.weights_sha256()) == (None, None, [])
    assert made.model_flops().forward_per_item is None
    assert made.model_flops().unknown == ["mode input has no model"]
