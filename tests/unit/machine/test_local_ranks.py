"""local_ranks: the all-gather of a node's processes, with real processes."""

import json
import subprocess
import sys
import time

import pytest

from dlbench import Error
from dlbench.common import own_code
from dlbench.machine import binding

PROGRAM = """
import json, pathlib, sys, time
from dlbench.machine import binding
folder, index, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
time.sleep(0.2 * (count - index))
print(json.dumps(binding.all_gather(pathlib.Path(folder), index, count, {"cpus": [index]})))
"""


def start(folder, index, count):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, folder, str(index), str(count)],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(own_code.project_path("workflow_scripts"))},
        text=True,
    )


def test_each_learns_what_all_say_in_their_order(tmp_path):
    processes = [start(tmp_path, index, 4) for index in range(4)]
    said = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert said == [[{"cpus": [index]} for index in range(4)]] * 4
    assert list(tmp_path.iterdir()) == []


def test_what_an_earlier_start_left_is_not_taken_for_fresh(tmp_path):
    for index in (0, 1):
        old = {"number": f"old{index}", "seen": {str(1 - index): "old"}, "facts": {"cpus": [99]}}
        path = tmp_path / f".local-rank-{index}-{binding._node()}.json"
        path.write_text(json.dumps(old))
    first = start(tmp_path, 0, 2)
    time.sleep(1)
    second = start(tmp_path, 1, 2)
    for process in (first, second):
        assert json.loads(process.communicate(timeout=60)[0]) == [{"cpus": [0]}, {"cpus": [1]}]


def test_who_does_not_come_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(binding, "PATIENCE_S", 0.1)
    with pytest.raises(Error, match=r"local rank 1 waited 0.1 s for local rank 0 and 2 of 3"):
        binding.all_gather(tmp_path, 1, 3, {})


def test_one_alone_writes_nothing(tmp_path):
    assert binding.all_gather(tmp_path / "absent", 0, 1, "me") == ["me"]
    assert not (tmp_path / "absent").exists()
