"""One device: copies from the host, files read cold and warm, and the rate of a reader.

What frameworks measure is tested in tests/frameworks/test_baselines.py.
"""

import itertools
import os

import pytest

from dlbench.baselines import one_device

SIZE = 8 << 20


class Kernels:
    """A device to which a copy takes no time at all."""

    def __init__(self):
        self.asked = []

    def from_host(self, numbers):
        self.asked.append(numbers)
        return lambda number: None


def test_of_copies_to_a_cpu_there_is_a_reason_instead_of_a_number():
    (row,) = one_device.host_copies(Kernels(), gpus=0)
    assert row["unknown"] == one_device.NO_COPIES and "value" not in row


def test_of_a_gpu_a_short_and_a_long_copy_are_timed():
    kernels = Kernels()
    rows = list(one_device.host_copies(kernels, gpus=1))
    assert [row["size_bytes"] for row in rows] == list(one_device.COPIED_BYTES)
    assert kernels.asked == [size // 4 for size in one_device.COPIED_BYTES]
    assert all(row["time_s"] > 0 and row["value"] > 0 for row in rows)


def test_a_file_is_read_cold_and_warm_and_then_removed(tmp_path):
    cold, warm = one_device.files_read(tmp_path, SIZE)
    assert (cold["measure"], warm["measure"]) == ("file_read_cold", "file_read_warm")
    assert warm["size_bytes"] == SIZE and warm["rounds"] == one_device.FILE_ROUNDS
    assert 0 < warm["low"] <= warm["value"] <= warm["high"]
    assert ("unknown" in cold) != ("value" in cold)
    assert not list(tmp_path.iterdir())


def test_where_the_system_does_not_forget_nothing_is_said_of_reading_cold(tmp_path, monkeypatch):
    # As on a file system that lives in memory: advice is taken, and nothing done.
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: None)
    cold, warm = one_device.files_read(tmp_path, SIZE)
    assert "the file system kept 100% of it" in cold["unknown"] and "value" not in cold
    assert warm["value"] > 0


def test_a_readers_rate_is_items_over_time_once_it_has_started():
    now = [0.0]

    def batches():
        for number in itertools.count():
            # What begins a reader takes long, and is not counted.
            now[0] += 5.0 if number < one_device.FIRST_BATCHES else 0.01
            yield number

    found = one_device._rates(batches(), batch=16, clock=lambda: now[0])
    assert found == pytest.approx([1600.0] * one_device.ITEM_ROUNDS)
