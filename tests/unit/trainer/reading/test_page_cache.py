"""page_cache: before a run a dataset is dropped from it, or read into it."""

import json
import os

import pytest

from dlbench import Error
from dlbench.trainer.reading import page_cache

SIZE = 4 << 20


@pytest.fixture
def dataset(tmp_path):
    splits = {}
    for split in ("train", "validation"):
        (tmp_path / split).write_bytes(os.urandom(SIZE))
        shard = {"file": split, "records": 1, "bytes": SIZE}
        splits[split] = {"records": 1, "shards": [shard]}
    reader = {"encoding": "raw", "shape": [1], "classes": 2}
    manifest = {"dataset": "noise", "kind": "image", "reader": reader, "splits": splits}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    return tmp_path


def test_a_cold_dataset_is_out_of_memory_and_a_warm_one_in_it(dataset):
    try:
        cold = page_cache.prepare(dataset, "cold")
    except Error as error:  # the tests' folder may be one that lives in memory
        assert "are still in the page cache after eviction" in str(error)
    else:
        assert (cold["files"], cold["bytes"]) == (2, 2 * SIZE)
        assert cold["kept_before"] > 0.9 and cold["kept"] <= page_cache.MAX_COLD
        assert page_cache.prepare(dataset, "warm")["kept_before"] <= page_cache.MAX_COLD
    assert page_cache.prepare(dataset, "warm")["kept"] == 1


def test_a_run_is_not_called_cold_where_the_system_does_not_forget(dataset, monkeypatch):
    # As on a file system that lives in memory: advice is taken, and nothing done.
    monkeypatch.setattr(os, "posix_fadvise", lambda *words: None)
    with pytest.raises(Error, match=r"100% of noise are still .* choose page_cache as_found"):
        page_cache.prepare(dataset, "cold")


def test_of_files_of_others_nothing_is_said_that_the_system_does_not_tell(dataset, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for state in ("cold", "warm"):
        assert page_cache.prepare(dataset, state) == {"files": 2, "bytes": 2 * SIZE}
