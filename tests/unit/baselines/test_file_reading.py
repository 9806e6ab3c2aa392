"""Reading a file: from the disk where the system forgets it, else with the reason."""

import os

from dlbench.baselines import file_reading

SIZE = 8 << 20


def test_a_file_is_read_cold_and_warm_and_then_removed(tmp_path):
    cold, warm = file_reading.rows(tmp_path, SIZE)
    assert (cold["measure"], warm["measure"]) == ("file_read_cold", "file_read_warm")
    assert warm["size_bytes"] == SIZE and warm["rounds"] == file_reading.ROUNDS
    assert 0 < warm["low"] <= warm["value"] <= warm["high"]
    assert ("unknown" in cold) != ("value" in cold)
    assert not list(tmp_path.iterdir())


def test_where_the_system_does_not_forget_nothing_is_said_of_reading_cold(tmp_path, monkeypatch):
    # As on a file system that lives in memory: advice is taken, and nothing done.
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: None)
    cold, warm = file_reading.rows(tmp_path, SIZE)
    assert "the file system kept 100% of it" in cold["unknown"] and "value" not in cold
    assert warm["value"] > 0
