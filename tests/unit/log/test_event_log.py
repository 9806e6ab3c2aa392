"""event_log: lines that survive kills and name their damage."""

import json
import math
import resource

import pytest

from dlbench.log import event_log
from dlbench.log.event_fields import LogError
from dlbench.log.event_log import EventLog


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "train.jsonl"


def written(path):
    log = EventLog(path)
    log.start(spec={"model": "lenet5"})
    log.step(1, 0.5, 0.25, 2.3, 0.01, True, 1)
    log.step(2, 0.75, 0.25, math.nan, 0.01, False, 1)
    log.write("run_end", t_utc=event_log.utc_now(), status="failed", message="no number")
    log.close()
    return path


def test_events_come_back_as_they_were_written_and_are_json_for_anyone(path):
    start, first, second, end = event_log.read(written(path))
    assert (start["event"], start["spec"]) == ("run_start", {"model": "lenet5"})
    fields = {"step": 1, "t_s": 0.5, "step_time_s": 0.25, "loss": 2.3, "learning_rate": 0.01}
    assert first == {"event": "step", **fields, "warm_up": True, "epoch": 1}
    assert math.isnan(second["loss"])
    assert end["status"] == event_log.last_run_end(path)["status"] == "failed"
    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_last_line_that_a_kill_cut_short_is_left_out(path, cut):
    content = written(path).read_bytes()
    path.write_bytes(content[:-cut])
    assert [event["event"] for event in event_log.read(path)] == ["run_start", "step", "step"]


def test_a_line_for_which_there_is_no_room_is_an_error_at_once(path):
    log = EventLog(path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            log.write("run_end", status="failed", message="x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    log.close()
    assert path.stat().st_size == 100
    assert list(event_log.read(path)) == []


@pytest.mark.parametrize("line", [b"not json\n", b"[1]\n", b'{"step": 1}\n', b"\xff\n"])
def test_any_other_damage_is_named_with_its_line(path, line):
    lines = written(path).read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], line, *lines[1:]]))
    with pytest.raises(LogError, match=r"train\.jsonl, line 2: not an event"):
        list(event_log.read(path))


def test_a_log_without_an_end_has_none(path):
    EventLog(path).start()
    assert event_log.last_run_end(path) is None
    assert event_log.last_run_end(path.with_name("absent.jsonl")) is None


def test_ranks_have_files_of_their_own(path):
    for rank in (0, 10, 2):
        EventLog(event_log.rank_path(path, rank)).close()
    (path.parent / "train.attempt1.jsonl").touch()
    names = [found.name for found in event_log.rank_paths(path)]
    assert names == ["train.jsonl", "train.rank2.jsonl", "train.rank10.jsonl"]


def test_logs_kept_aside_are_numbered_and_never_overwritten(path):
    for attempt in (1, 2):
        EventLog(path).write("launch", attempt=attempt)
        EventLog(event_log.rank_path(path, 1)).close()
        path.with_name(event_log.TRACE).write_text(str(attempt))
        event_log.keep_aside(path)
        assert not path.with_name(event_log.TRACE).exists()
    names = ["trace.attempt{}.json.gz", "train.attempt{}.jsonl", "train.attempt{}.rank1.jsonl"]
    kept = sorted(name.format(attempt) for name in names for attempt in (1, 2))
    assert sorted(found.name for found in path.parent.iterdir()) == kept
    assert '"attempt": 1' in (path.parent / "train.attempt1.jsonl").read_text()
    # The trace of a profile stays with the log that names it.
    assert (path.parent / "trace.attempt2.json.gz").read_text() == "2"


def test_dates_are_utc_and_their_distance_is_seconds():
    assert event_log.utc_now().endswith("Z")
    start, end = "2026-01-01T23:59:59.500000Z", "2026-01-02T00:00:01.000000Z"
    assert event_log.seconds_between(start, end) == 1.5


def earlier(path, steps=2):
    """The bytes of a log that was started and took some steps."""
    log = EventLog(path)
    log.write("launch", command=["first"])
    log.start(spec={"model": "lenet5"})
    for step in range(1, steps + 1):
        log.step(step, step * 0.5, 0.5, 2.0, 0.01, False, 1)
    content = log.content()
    log.close()
    path.unlink()
    return content


def kinds(path):
    return [event["event"] for event in event_log.read(path)]


def test_a_resumed_log_goes_on_after_the_earlier_one_and_how_it_was_started_this_time(path):
    before = earlier(path)
    log = EventLog(path)
    log.write("launch", command=["second"])
    log.resume(before, 1000.0, step=2, host="here")
    assert 1000.0 <= log.now() < 1060.0
    assert path.read_bytes().startswith(before)
    resume = list(event_log.read(path))[-1]
    assert event_log.seconds_between(resume.pop("t_utc"), event_log.utc_now()) < 60
    assert resume == {"event": "resume", "step": 2, "t_s": 1000.0, "host": "here"}
    log.step(3, 1000.5, 0.5, 2.0, 0.01, False, 1)
    assert kinds(path) == ["launch", "run_start", "step", "step", "launch", "resume", "step"]
    launches = [event["command"] for event in event_log.read(path) if event["event"] == "launch"]
    assert launches == [["first"], ["second"]]


def test_steps_after_the_checkpoint_are_gone(path):
    before = earlier(path, steps=2)
    path.write_bytes(before)
    log = EventLog(path)
    for step in (3, 4, 5):
        log.step(step, step * 0.5, 0.5, 9.0, 0.01, False, 1)
    log.resume(before, 1.0, step=2)
    log.step(3, 1.5, 0.5, 2.0, 0.01, False, 1)
    steps = [event for event in event_log.read(path) if event["event"] == "step"]
    assert [(event["step"], event["loss"]) for event in steps] == [(1, 2.0), (2, 2.0), (3, 2.0)]
    assert kinds(path).count("launch") == 1


def test_who_has_the_log_open_sees_it_and_may_write_on(path):
    before = earlier(path)
    other = EventLog(path)
    other.write("launch", command=["second"])
    log = EventLog(path)
    with open(path, "rb") as reader:
        log.resume(before, 1.0, step=2)
        assert reader.read() == other.content() == path.read_bytes()
    other.write("run_end", t_utc=event_log.utc_now(), status="failed", message="")
    assert kinds(path)[-2:] == ["resume", "run_end"]
    assert event_log.last_run_end(path)["status"] == "failed"


def test_a_log_longer_than_one_write_comes_back_whole(path):
    before = earlier(path, steps=30_000)
    log = EventLog(path)
    log.resume(before, 1.0, step=30_000)
    assert len(before) > 1 << 20
    assert path.read_bytes()[: len(before)] == before
    assert kinds(path)[-1] == "resume"


def test_the_content_of_a_log_is_what_was_written_so_far_and_times_can_be_shifted(path):
    log = EventLog(path)
    assert log.content() == b""
    for event, t_s in (("sample", 1.0), ("output", 1.5), ("sample", 2.0)):
        log.write(event, t_s=t_s)
    log.shift("sample", -1.5)
    log.write("sample", t_s=3.0)
    assert log.content() == path.read_bytes()
    found = [tuple(event.values()) for event in map(json.loads, log.content().splitlines())]
    assert found == [("sample", -0.5), ("output", 1.5), ("sample", 0.5), ("sample", 3.0)]


def test_an_end_by_a_signal_is_no_result(path):
    log = EventLog(path)
    date = event_log.utc_now()
    log.write("run_end", t_utc=date, status="failed", message=event_log.STOPPED_BY_SIGNAL)
    assert event_log.last_run_end(path) and event_log.final_run_end(path) is None
    log.write("run_end", t_utc=date, status="ok", message="")
    assert event_log.final_run_end(path)["status"] == "ok"
