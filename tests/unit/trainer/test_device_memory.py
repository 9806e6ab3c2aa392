"""device_memory: what a framework counts of its devices, and the reason if it does not."""

import pytest

from dlbench.log import event_log
from dlbench.log.event_fields import LogError
from dlbench.trainer import device_memory
from dlbench.trainer.device_memory import Peak

COUNTED = {"a": (5, 8), "b": (7, 7)}


def test_each_device_has_its_own_peaks_in_their_order():
    assert device_memory.read_peaks("ab", COUNTED.get) == Peak([5, 7], [8, 7], None)


def test_what_is_not_counted_of_one_device_is_not_known_and_named():
    for missing in (None, -1, 0):
        peak = device_memory.read_peaks("ab", (COUNTED | {"b": (7, missing)}).get)
        assert peak == Peak([5, 7], None, "the framework does not count what is reserved")


def test_a_framework_that_counts_nothing_or_fails_ends_no_run_and_says_why():
    def fail(device):
        raise ValueError(f"Allocator stats not available for device '{device}'\n")

    for read, words in (
        (lambda device: (None, None), "the framework does not count it"),
        (fail, "ValueError: Allocator stats not available for device 'CPU:0'"),
    ):
        assert device_memory.read_peaks(["CPU:0"], read) == Peak(None, None, words)


def logged(tmp_path, **fields):
    """What is read of a run's end with these fields."""
    log = event_log.EventLog(tmp_path / "train.jsonl")
    log.write("run_end", status="failed", message="", t_utc=event_log.utc_now(), **fields)
    log.close()
    (found,) = event_log.read(tmp_path / "train.jsonl")
    return found


def test_the_fields_of_run_end_are_read_again(tmp_path):
    fields = {
        "peak_allocated_bytes_per_device": [5, 7],
        "peak_reserved_bytes_per_device": None,
        "device_memory_unknown": "why",
        "device_memory_limit_bytes": 9,
    }
    found = logged(tmp_path, **device_memory.fields(Peak([5, 7], None, "why", 9)))
    assert found.items() >= fields.items()


@pytest.mark.parametrize("wrong", [5, [-1], ["5"], [0.5]])
def test_peaks_that_are_no_counts_are_an_error_of_the_log(tmp_path, wrong):
    with pytest.raises(LogError, match="peak_allocated_bytes_per_device"):
        logged(tmp_path, peak_allocated_bytes_per_device=wrong)
