"""How far a run is, by the beginning and the end of its log."""

import json
import os
import re
import time

import pytest

from dlbench.records import costs
from support.runs.parsed_runs import RUN

AT = "2026-11-21T01:00:0{}.000000Z"
BEFORE = ["launch", "begin", "stage", "stage"]


@pytest.fixture
def log(tmp_path):
    return tmp_path / "train.jsonl"


def add(log, *events):
    with log.open("a") as file:
        file.writelines(f"{json.dumps(event)}\n" for event in events)


def write(log, first=BEFORE, steps=2, **spec):
    for number, kind in enumerate(first):
        name = {"name": "data"} if kind == "stage" else {}
        add(log, {"event": kind, "t_utc": AT.format(number), **name})
    facts = {"hardware": {}, "software": {}, "limits": {}, "variables": {}, "present": {}}
    start = {"event": "run_start", "t_utc": AT.format(6), "total_steps": 2}
    add(log, start | {"spec": RUN.values() | spec}, {"event": "machine", **facts, "unknown": {}})
    add(log, {"event": "compile"})
    for step in range(1, steps + 1):
        fields = {"step_time_s": 0.5, "loss": 2.0, "learning_rate": 0.1, "epoch": 1}
        add(log, {"event": "step", "step": step, "t_s": float(step), "warm_up": step == 1} | fields)


@pytest.mark.parametrize("first", [BEFORE[:2], BEFORE, BEFORE[1:]], ids=len)
def test_a_run_is_as_far_as_its_last_step_whatever_is_logged_before_it_starts(log, first):
    write(log, first)
    assert costs.describe(log) == "step 2/2, loss 2, 64 items/s"
    assert [event["event"] for event in costs.head(log)] == [*first, "run_start"]


def test_a_run_of_others_has_taken_its_steps_however_many_samples_come_first(log):
    add(log, *[{"event": "sample", "t_s": 2.0, "cpu_percent": 34.59}] * 64)
    write(log)
    assert costs.describe(log) == "step 2/2, loss 2, 64 items/s"
    assert [event["event"] for event in costs.head(log)] == [*BEFORE, "run_start"]


def test_of_a_warm_up_of_some_time_the_steps_that_follow_are_counted_from_its_end(log):
    write(log, BEFORE, 1, warmup_s=30.0)
    assert costs.describe(log) == "step 1/4, loss 2"  # so far
    ended = {"event": "warm_up", "step": 1, "passed_s": 30.5, "last_step": 7, "total_steps": 12}
    add(log, ended)
    assert costs.describe(log) == "step 1/12, loss 2"


def test_of_a_run_without_a_model_no_loss_is_told(log):
    write(log, mode="input")
    assert costs.describe(log) == "step 2/2, 64 items/s"


def test_a_run_without_a_step_says_so(log):
    write(log, steps=0)
    assert costs.describe(log) == "no step yet"


@pytest.mark.parametrize("seconds", [100, 600])
def test_a_run_that_hangs_is_as_far_as_its_last_step_however_long_samples_are_taken(log, seconds):
    write(log)
    sample = {"event": "sample", "t_s": 2.0, "cpu_percent": 34.59, "memory_bytes": 486252544}
    add(log, *[sample | {f"gpu{n}_power_w": 312.625 for n in range(8)}] * seconds)
    assert costs.describe(log) == "step 2/2, loss 2, 64 items/s"


def test_what_a_run_took_counts_from_its_launch_whatever_is_logged_before_it_starts(log):
    write(log)
    end = {"event": "run_end", "status": "ok", "message": "", "t_utc": AT.format(9), "t_s": 2.5}
    add(log, end | {"weights_sha256": ["0"]})
    assert costs.full_duration_s(log) == 6 + 2.5


def test_of_a_program_of_others_it_is_told_how_much_it_has_written_and_when(tmp_path):
    assert costs.describe_output(tmp_path) == "it has printed nothing yet"
    now = time.time()
    for name, size, ago_s in (("out.txt", 1500, 40), ("a/log", 500, 90), (".tmp", 9000, 5)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
        os.utime(tmp_path / name, (now - ago_s, now - ago_s))
    said = re.fullmatch(
        r"it has written 2 kB, the last (\d+) s ago", costs.describe_output(tmp_path)
    )
    assert 40 <= int(said[1]) < 80
    os.utime(tmp_path / "out.txt", (now + 900, now + 900))  # by a clock that is ahead
    assert costs.describe_output(tmp_path) == "it has written 2 kB, the last 0 s ago"
