"""measure_baselines: its flags, one device without a framework, and what a round of times is.

What frameworks measure is tested in tests/frameworks/test_baselines.py.
"""

import itertools
import os

import numpy as np
import pytest

from dlbench.baselines import measure_baselines, rounds


def test_fields_of_a_run_that_are_no_json_are_refused(capsys):
    with pytest.raises(SystemExit):
        measure_baselines.parser().parse_args(["--spec", "{", "--output", "x"])
    assert "--spec: invalid" in capsys.readouterr().err


SIZE = 8 << 20


class Kernels:
    """A device to which a copy takes no time at all."""

    def __init__(self):
        self.asked = []

    def from_host(self, numbers):
        self.asked.append(numbers)
        return lambda number: None


def test_of_copies_to_a_cpu_there_is_a_reason_instead_of_a_number():
    (row,) = measure_baselines.host_copies(Kernels(), gpus=0)
    assert row["unknown"] == measure_baselines.NO_COPIES and "value" not in row


def test_of_a_gpu_a_short_and_a_long_copy_are_timed():
    kernels = Kernels()
    rows = list(measure_baselines.host_copies(kernels, gpus=1))
    assert [row["size_bytes"] for row in rows] == list(measure_baselines.COPIED_BYTES)
    assert kernels.asked == [size // 4 for size in measure_baselines.COPIED_BYTES]
    assert all(row["time_s"] > 0 and row["value"] > 0 for row in rows)


def test_a_file_is_read_cold_and_warm_and_then_removed(tmp_path):
    cold, warm = measure_baselines.files_read(tmp_path, SIZE)
    assert (cold["measure"], warm["measure"]) == ("file_read_cold", "file_read_warm")
    assert warm["size_bytes"] == SIZE and warm["rounds"] == measure_baselines.FILE_ROUNDS
    assert 0 < warm["low"] <= warm["value"] <= warm["high"]
    assert ("unknown" in cold) != ("value" in cold)
    assert not list(tmp_path.iterdir())


def test_where_the_system_does_not_forget_nothing_is_said_of_reading_cold(tmp_path, monkeypatch):
    # As on a file system that lives in memory: advice is taken, and nothing done.
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: None)
    cold, warm = measure_baselines.files_read(tmp_path, SIZE)
    assert "the file system kept 100% of it" in cold["unknown"] and "value" not in cold
    assert warm["value"] > 0


def test_a_readers_rate_is_items_over_time_once_it_has_started():
    now = [0.0]

    def batches():
        for number in itertools.count():
            # What begins a reader takes long, and is not counted.
            now[0] += 5.0 if number < measure_baselines.FIRST_BATCHES else 0.01
            yield number

    found = measure_baselines._rates(batches(), batch=16, clock=lambda: now[0])
    assert found == pytest.approx([1600.0] * measure_baselines.ITEM_ROUNDS)


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
