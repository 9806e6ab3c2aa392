"""device_memory: what a framework counts of its devices, and the reason if it does not."""

import pytest

from dlbench.log import event_log
from dlbench.log.event_fields import LogError
from dlbench.trainer import device_memory
from dlbench.trainer.device_memory import Peak

COUNTED = {"a": (5, 8), "b": (7, 7)}


def test_each_device_has_its_own_peaks_in_their_order():
    assert device_memory.read_peaks("ab", COUNTED.get) == Peak([5, 7], [8, 7], None)


@pytest.mark.parametrize("missing", [None, -1, 0])
def test_what_is_not_counted_of_one_device_is_not_known_and_named(missing):
    peak = device_memory.read_peaks("ab", (COUNTED | {"b": (7, missing)}).get)
    assert peak == Peak([5, 7], None, "the framework does not count what is reserved")


def test_a_framework_that_counts_nothing_says_so():
    assert device_memory.read_peaks("ab", lambda device: (None, None)) == device_memory.NOT_COUNTED
    assert device_memory.NOT_COUNTED.unknown == "the framework does not count it"


def test_an_error_of_the_framework_is_the_reason_and_ends_no_run():
    def read(device):
        raise ValueError(f"Allocator stats not available for device '{device}'\n")

    peak = device_memory.read_peaks(["CPU:0"], read)
    words = "ValueError: Allocator stats not available for device 'CPU:0'"
    assert peak == Peak(None, None, words)


def test_the_fields_of_run_end_are_read_again(tmp_path):
    log = event_log.EventLog(tmp_path / "train.jsonl")
    end = {"status": "failed", "message": "", "t_utc": event_log.utc_now()}
    log.write("run_end", **end, **device_memory.fields(Peak([5, 7], None, "why", 9)))
    log.close()
    (found,) = event_log.read(tmp_path / "train.jsonl")
    assert found["peak_allocated_bytes_per_device"] == [5, 7]
    assert found["peak_reserved_bytes_per_device"] is None
    assert found["device_memory_unknown"] == "why"
    assert found["device_memory_limit_bytes"] == 9


@pytest.mark.parametrize("wrong", [5, [-1], ["5"], [0.5]])
def test_peaks_that_are_no_counts_are_an_error_of_the_log(tmp_path, wrong):
    log = event_log.EventLog(tmp_path / "train.jsonl")
    end = {"status": "failed", "message": "", "t_utc": event_log.utc_now()}
    log.write("run_end", **end, peak_allocated_bytes_per_device=wrong)
    log.close()
    with pytest.raises(LogError, match="peak_allocated_bytes_per_device"):
        list(event_log.read(tmp_path / "train.jsonl"))
