"""The reader's rate: items over time, for each core."""

import itertools

import pytest

from dlbench.baselines import item_reading


def test_the_rate_is_items_over_time_once_the_reader_has_started():
    now, taken = [0.0], []

    def batches():
        for number in itertools.count():
            # What begins a reader takes long, and is not counted.
            now[0] += 5.0 if number < item_reading.FIRST_BATCHES else 0.01
            taken.append(number)
            yield number

    found = item_reading._rates(batches(), batch=16, clock=lambda: now[0])
    assert found == pytest.approx([1600.0] * item_reading.ROUNDS)
