"""Unreadable lines in a log: the supervisor goes on and reports what it can read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.log import event_log
from dlbench.records import progress
from dlbench.starting import supervisor
from support.trainers.watched_runs import END, watched

DATE = "2026-11-22T01:02:03.000004Z"
SPEC = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 8, "steps": 9}
STEP = {"event": "step", "step": 1, "t_s": 0.5, "step_time_s": 0.5, "loss": 2.0,
        "learning_rate": 0.1, "warm_up": False, "epoch": 1}  # fmt: skip
LINES = [
    json.dumps(line).encode() + b"\n"
    for line in (
        {"event": "launch", "t_utc": DATE},
        {"event": "run_start", "t_utc": DATE, "spec": SPEC, "total_steps": 9},
        STEP,
        STEP | {"step": 2},
        {"event": "run_end", "status": "ok", "message": "", "t_utc": "2026-11-22T01:02:04.000004Z"},
    )
]
UNREADABLE = [
    b'{"event": "step", "step": 2, "loss": nan}\n',
    b'{"event": "step"\n',
    b'{"event": "step", "x": ' + b"[" * 1000 + b"\n",
    b'{"event": "run_end"}\n',
    b'{"event": "run_end", "status": 5, "message": ""}\n',
    b'{"event": "run_end", "status": "ok", "message": null}\n',
    b"\xff\xfe\n",
    b"[]\n",
]


def read_progress(log):
    """All values that the supervisor reads from a log."""
    return progress.describe(log), progress.duration_s(log), supervisor._end_of_ranks(log)


@pytest.mark.parametrize("line", UNREADABLE)
def test_progress_is_that_of_the_lines_that_can_be_read(tmp_path, line):
    log = tmp_path / "train.jsonl"
    log.write_bytes(b"".join([*LINES[:3], line]))
    text, duration_s, end = read_progress(log)
    assert text == "step 1/9, loss 2, 16 images/s"
    assert (duration_s, end) == (None, None)


@given(
    st.integers(0, len(LINES) - 1), st.integers(0, 200), st.binary(max_size=4), st.integers(0, 4)
)
def test_no_change_of_some_bytes_is_an_error(tmp_path_factory, number, place, inserted, lost):
    lines = list(LINES)
    line, place = lines[number], place % len(lines[number])
    lines[number] = line[:place] + inserted + line[place + lost :]
    log = tmp_path_factory.mktemp("log") / "train.jsonl"
    log.write_bytes(b"".join(lines))
    read_progress(log)


@given(
    st.integers(1, len(LINES) - 1),
    st.sampled_from(
        [
            "spec",
            "total_steps",
            "step",
            "loss",
            "step_time_s",
            "warm_up",
            "status",
            "message",
            "t_utc",
        ]
    ),
    st.sampled_from([None, "x", 0, -1, [], {}, True, "nan", 10**400]),
)
def test_no_field_of_another_kind_is_an_error(tmp_path_factory, number, field, value):
    lines = list(LINES)
    lines[number] = json.dumps(json.loads(lines[number]) | {field: value}).encode() + b"\n"
    log = tmp_path_factory.mktemp("log") / "train.jsonl"
    log.write_bytes(b"".join(lines))
    read_progress(log)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("line", UNREADABLE)
def test_a_run_whose_log_has_such_a_line_is_watched_to_its_end(tmp_path, monkeypatch, line):
    monkeypatch.setattr(supervisor, "SHOW_EVERY_S", 0.01)
    starts = b"".join(LINES[1:3]) + line
    log = tmp_path / "runs/run/train.jsonl"
    writes = f"open({str(log)!r}, 'ab').write({starts!r})\ntime.sleep(0.2)\n"
    run = watched(tmp_path, writes + END)
    assert supervisor.supervise(run)
    assert event_log.last_run_end(run.log)["status"] == "ok"


def test_no_number_of_a_step_makes_its_line_no_json(tmp_path):
    log = event_log.EventLog(tmp_path / "train.jsonl")
    log.start(spec=SPEC)
    log.step(1, 0.5, 0.5, float("nan"), float("inf"), False, 1)
    log.close()
    _, line = (tmp_path / "train.jsonl").read_text().splitlines()
    found = json.loads(line, parse_constant=pytest.fail)
    assert (found["loss"], found["learning_rate"]) == ("nan", "inf")
    _, event = event_log.read(tmp_path / "train.jsonl")
    assert event["learning_rate"] == float("inf")
