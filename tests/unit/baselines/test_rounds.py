"""Rounds: how many are done in each, whose time counts, and what is kept."""

import numpy as np
import pytest

from dlbench.baselines import rounds


class Clock:
    """Time that passes only by what is done."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def operation(clock, seconds, done):
    def times(number):
        done.append(number)
        clock.now += number * seconds

    return times


@pytest.mark.parametrize(
    ("seconds", "number"), [(0.5, 1), (0.01, 10), (1e-6, rounds.MAX_PER_ROUND)]
)
def test_a_round_has_as_many_as_fill_its_time_and_no_end_of_short_ones(seconds, number):
    clock, done = Clock(), []
    found = rounds.seconds_per_operation(operation(clock, seconds, done), clock=clock)
    assert done == [1, 1, *[number] * rounds.ROUNDS]
    np.testing.assert_allclose(found, [seconds] * rounds.ROUNDS)


def test_what_takes_longer_than_expected_fills_one_round_with_too_many():
    clock, done = Clock(), []

    def slower(number):
        done.append(number)
        clock.now += number * (0.001 if len(done) < 3 else 0.05)

    found = rounds.seconds_per_operation(slower, clock=clock)
    assert done == [1, 1, 100, *[2] * (rounds.ROUNDS - 1)]
    np.testing.assert_allclose(found, [0.05] * rounds.ROUNDS)


def test_the_slowest_process_counts_and_all_begin_a_round_together():
    clock, gathered = Clock(), []

    def gather(values):
        gathered.append(values)
        return [values, [3 * values[0]]]  # the other one takes three times as long

    found = rounds.seconds_per_operation(operation(clock, 0.05, []), gather, clock)
    # How many there are in a round follows from what is agreed: here one, alone two.
    np.testing.assert_allclose(found, [0.15] * rounds.ROUNDS)
    assert gathered[0::2] == [[0.0]] * (rounds.ROUNDS + 2)


def test_of_what_moves_bytes_the_bandwidth_and_the_time_are_kept():
    found = rounds.timed("all_reduce", 1000, [2e-6, 1e-6, 4e-6], moved_bytes=1500)
    assert (found["size_bytes"], found["unit"], found["rounds"]) == (1000, "GB/s", 3)
    assert (found["value"], found["low"], found["high"]) == pytest.approx((0.75, 0.375, 1.5))
    times_s = (found["time_s"], found["time_low_s"], found["time_high_s"])
    assert times_s == (2e-6, 1e-6, 4e-6)
