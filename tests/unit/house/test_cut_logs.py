"""Logs that are truncated at any byte, or damaged otherwise, are no results."""

import contextlib
import json
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlbench.log import event_log
from dlbench.log.event_fields import LogError
from dlbench.records import judgement, parse_run, run_record
from dlbench.records.judgement import State
from dlbench.study import trainer_environments
from support.runs.ended_runs import ONE, TWO, log_of


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)


def read_again(run, log):
    """Do what the workflow does: parse the log if that is enough. Returns the record or None."""
    state, _ = judgement.state(run)
    if state is State.UNREAD:
        parse_run.parse(run, log, log.with_name("run.json"))
        return run_record.read(log.with_name("run.json"))
    assert state in (State.STALE, State.DAMAGED)
    return None


@pytest.mark.parametrize("with_record", [False, True])
@pytest.mark.parametrize("run", [ONE, TWO], ids=["one rank", "two ranks"])
def test_a_log_cut_at_any_byte_is_trained_again(here, run, with_record):
    log = log_of(run)
    path = event_log.rank_paths(log)[-1]
    whole, record = path.read_bytes(), log.with_name("run.json")
    parse_run.parse(run, log, record)
    good = record.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        if with_record:
            record.write_bytes(good)
        else:
            record.unlink(missing_ok=True)
        assert read_again(run, log) is None, f"believed with {length} of {len(whole)} bytes"
    path.write_bytes(whole)
    record.unlink(missing_ok=True)
    assert read_again(run, log)["status"] == "ok"


def test_a_run_whose_second_ranks_log_is_gone_is_trained_again(here):
    log = log_of(TWO)
    event_log.rank_path(log, 1).unlink()
    assert judgement.state(TWO)[0] is State.DAMAGED
    assert "logs of 2 devices expected, found those of 1" in judgement.state(TWO)[1]


def test_a_run_that_failed_is_read_again_though_a_rank_ended_without_a_word(here):
    log = log_of(TWO, status="oom", message="no memory")
    path = event_log.rank_path(log, 1)
    path.write_bytes(path.read_bytes()[:-10])
    record = read_again(TWO, log)
    assert (record["status"], record["message"]) == ("oom", "rank 0: no memory")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "RecursionError"),
        (b'{"event": "step", "loss": "' + b"9" * event_log.MAX_LINE_BYTES + b'"}', "longer than"),
        (b'{"event": "st', "not an event"),
        (b"\x00" * 512, "not an event"),  # a block that a power cut left empty
    ],
    ids=["deep", "long", "half", "zeros"],
)
def test_a_line_that_is_no_event_is_named_and_the_run_trained_again(here, line, message):
    log = log_of(ONE)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:2], line + b"\n", *lines[2:]]))
    assert read_again(ONE, log) is None
    with pytest.raises(LogError, match=f"line 3: .*{message}"):
        list(event_log.read(log))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_record_with_any_byte_changed_is_not_believed(data, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "changed"
    shutil.rmtree(folder, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        folder.mkdir()
        (folder / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
        patch.chdir(folder)
        log = log_of(ONE)
        record = log.with_name("run.json")
        parse_run.parse(ONE, log, record)
        good = record.read_bytes()
        place = data.draw(st.integers(0, len(good) - 1))
        changed = bytearray(good)
        changed[place] ^= data.draw(st.integers(1, 255))
        record.write_bytes(changed)
        with contextlib.suppress(run_record.RecordError):
            run_record.read(record)
            # White space between values is no part of what a record says.
            assert json.loads(changed) == json.loads(good)


def test_a_record_that_lacks_a_key_is_not_whole(here):
    log = log_of(ONE)
    record = log.with_name("run.json")
    record.write_text('{"record_version": 1, "record_sha256": "0"}')
    with pytest.raises(run_record.RecordError, match=r"not a whole record .*parser_version"):
        run_record.read(record)
    record.write_text("[" * 100_000)
    with pytest.raises(run_record.RecordError, match="not a whole record"):
        run_record.read(record)
    assert judgement.state(ONE)[0] is State.UNREAD


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (
            [0, 1, 2, 3, 4, 4, 5, 6, 7],
            "expected step 3, found 2: lines are missing or doubled",
        ),
        ([0, 1, 2, 3, 5, 6, 7], "expected step 2, found 3"),
        ([0, 1, 2, 3, 4, 5, 7], "all is well after step 3, but run_start says that there are 4"),
        ([0, 1, 2, 2, 3, 4, 5, 6, 7], "run_start: a second one"),
        ([0, 1, 3, 4, 5, 6, 7], "step: there is no run_start before it"),
    ],
    ids=["a step twice", "a step gone", "the last step gone", "two starts", "no start"],
)
def test_a_good_run_is_no_failure_because_lines_of_its_log_are_gone_or_doubled(
    here, numbers, message
):
    log = log_of(ONE)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[number] for number in numbers))
    state, reason = judgement.state(ONE)
    assert state is State.DAMAGED and message in reason
    with pytest.raises(LogError, match=message):
        parse_run.parse(ONE, log, log.with_name("run.json"))
