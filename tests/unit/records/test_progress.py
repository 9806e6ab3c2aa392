"""How far a run is, by the beginning and the end of its log."""

import json

import pytest

from dlbench.records import costs, progress
from support.runs.parsed_runs import RUN

AT = "2026-11-21T01:00:0{}.000000Z"
BEFORE = ["launch", "begin", "stage", "stage"]


def write(log, first, steps=2):
    events = [
        {"event": kind, "t_utc": AT.format(number), **({"name": "data"} if kind == "stage" else {})}
        for number, kind in enumerate(first)
    ]
    facts = {"hardware": {}, "software": {}, "limits": {}, "variables": {}, "present": {}}
    start = {"event": "run_start", "t_utc": AT.format(6), "spec": RUN.values(), "total_steps": 2}
    events += [start, {"event": "machine", **facts, "unknown": {}}, {"event": "compile"}]
    events += [
        {"event": "step", "step": step, "t_s": float(step), "step_time_s": 0.5, "loss": 2.0,
         "learning_rate": 0.1, "warm_up": step == 1, "epoch": 1}
        for step in range(1, steps + 1)
    ]  # fmt: skip
    log.write_text("".join(f"{json.dumps(event)}\n" for event in events))


@pytest.mark.parametrize("first", [BEFORE[:2], BEFORE, BEFORE[1:]], ids=len)
def test_a_run_is_as_far_as_its_last_step_whatever_is_logged_before_it_starts(tmp_path, first):
    write(tmp_path / "train.jsonl", first)
    assert progress.describe(tmp_path / "train.jsonl") == "step 2/2, loss 2, 64 images/s"
    assert [event["event"] for event in progress.head(tmp_path / "train.jsonl")] == [
        *first,
        "run_start",
    ]


def test_of_a_warm_up_of_some_time_the_steps_that_follow_are_counted_from_its_end(tmp_path):
    log = tmp_path / "train.jsonl"
    write(log, BEFORE, steps=1)
    spec = json.dumps(RUN.values())
    timed = json.dumps(RUN.values() | {"warmup_s": 30.0, "steps": 5})
    log.write_text(log.read_text().replace(spec, timed))
    assert progress.describe(log) == "step 1/6, loss 2"  # so far
    ended = {"event": "warm_up", "step": 1, "passed_s": 30.5, "last_step": 7, "total_steps": 12}
    log.write_text(log.read_text() + json.dumps(ended) + "\n")
    assert progress.describe(log) == "step 1/12, loss 2"


def test_of_a_run_without_a_model_no_loss_is_told(tmp_path):
    log = tmp_path / "train.jsonl"
    write(log, BEFORE)
    spec = json.dumps(RUN.values())
    log.write_text(log.read_text().replace(spec, json.dumps(RUN.values() | {"mode": "input"})))
    assert progress.describe(log) == "step 2/2, 64 images/s"


def test_a_run_without_a_step_says_so(tmp_path):
    write(tmp_path / "train.jsonl", BEFORE, steps=0)
    assert progress.describe(tmp_path / "train.jsonl") == "no step yet"


@pytest.mark.parametrize("seconds", [100, 600])
def test_a_run_that_hangs_is_as_far_as_its_last_step_however_long_samples_are_taken(
    tmp_path, seconds
):
    log = tmp_path / "train.jsonl"
    write(log, BEFORE)
    sample = {"event": "sample", "t_s": 2.0, "cpu_percent": 34.59, "memory_bytes": 486252544}
    sample |= {f"gpu{number}_power_w": 312.625 for number in range(8)}
    log.write_text(log.read_text() + f"{json.dumps(sample)}\n" * seconds)
    assert progress.describe(log) == "step 2/2, loss 2, 64 images/s"


def test_what_a_run_took_counts_from_its_launch_whatever_is_logged_before_it_starts(tmp_path):
    log = tmp_path / "train.jsonl"
    write(log, BEFORE)
    end = {"event": "run_end", "status": "ok", "message": "", "t_utc": AT.format(9), "t_s": 2.5}
    log.write_text(log.read_text() + json.dumps(end | {"weights_sha256": ["0"]}) + "\n")
    assert costs.full_duration_s(log) == 6 + 2.5
