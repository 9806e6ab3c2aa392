"""eventlog: lines that survive kills and name their damage."""

import math

import pytest

from dlbench import eventlog
from dlbench.eventlog import EventLog, LogError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "train.jsonl"


def written(path):
    log = EventLog(path)
    log.start(spec={"model": "lenet5"})
    log.step(1, 0.5, 0.25, 2.3, 0.01, True, 1)
    log.step(2, 0.75, 0.25, math.nan, 0.01, False, 1)
    log.write("run_end", status="failed", message="the loss is not a number")
    log.close()
    return path


def test_events_come_back_as_they_were_written(path):
    start, first, second, end = eventlog.read(written(path))
    assert (start["event"], start["spec"]) == ("run_start", {"model": "lenet5"})
    assert first == {
        "event": "step", "step": 1, "t_s": 0.5, "step_time_s": 0.25, "loss": 2.3,
        "learning_rate": 0.01, "warm_up": True, "epoch": 1,
    }  # fmt: skip
    assert math.isnan(second["loss"])
    assert end["status"] == eventlog.ended(path)["status"] == "failed"


def test_every_line_is_json_for_anyone(path):
    import json

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    for line in written(path).read_text().splitlines():
        json.loads(line, parse_constant=refuse)


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_last_line_that_a_kill_cut_short_is_left_out(path, cut):
    content = written(path).read_bytes()
    path.write_bytes(content[:-cut])
    assert [event["event"] for event in eventlog.read(path)] == ["run_start", "step", "step"]


@pytest.mark.parametrize("line", [b"not json\n", b"[1]\n", b'{"step": 1}\n', b"\xff\n"])
def test_any_other_damage_is_named_with_its_line(path, line):
    lines = written(path).read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], line, *lines[1:]]))
    with pytest.raises(LogError, match=r"train\.jsonl, line 2: not an event"):
        list(eventlog.read(path))


def test_a_log_without_an_end_has_none(path):
    log = EventLog(path)
    log.start()
    assert eventlog.ended(path) is None
    assert eventlog.ended(path.with_name("absent.jsonl")) is None


def test_ranks_have_files_of_their_own(path):
    for rank in (0, 10, 2):
        EventLog(eventlog.rank_path(path, rank)).close()
    (path.parent / "train.attempt1.jsonl").touch()
    names = [found.name for found in eventlog.rank_paths(path)]
    assert names == ["train.jsonl", "train.rank2.jsonl", "train.rank10.jsonl"]


def test_logs_kept_aside_are_numbered_and_never_overwritten(path):
    for attempt in (1, 2):
        EventLog(path).write("launch", attempt=attempt)
        EventLog(eventlog.rank_path(path, 1)).close()
        eventlog.keep_aside(path)
    assert sorted(found.name for found in path.parent.iterdir()) == [
        "train.attempt1.jsonl",
        "train.attempt1.rank1.jsonl",
        "train.attempt2.jsonl",
        "train.attempt2.rank1.jsonl",
    ]
    assert '"attempt": 1' in (path.parent / "train.attempt1.jsonl").read_text()


def test_dates_are_utc_and_their_distance_is_seconds():
    assert eventlog.utc_now().endswith("Z")
    start, end = "2026-01-01T23:59:59.500000Z", "2026-01-02T00:00:01.000000Z"
    assert eventlog.seconds_between(start, end) == 1.5
