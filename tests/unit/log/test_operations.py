"""operations: which a trace has, how often each was executed, and its self time."""

import gzip
import json

import pytest

from dlbench.log import operations


def done(name, ts, dur, cat="cpu_op", tid=1, **more):
    """A complete event of a trace; times in microseconds."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, **more}


def times(events):
    """{operation: (how often, microseconds)}"""
    found = operations.summarise(events)
    return {one["operation"]: (one["count"], pytest.approx(1e6 * one["spent_s"])) for one in found}


def test_what_is_done_within_an_operation_is_no_time_of_its_own():
    inner = done("inner", 10, 40), done("innermost", 20, 5), done("inner", 60, 20)
    found = times([done("outer", 0, 100), *inner, done("next", 100, 30)])
    own = {"outer": (1, 40.0), "inner": (2, 55.0), "innermost": (1, 5.0), "next": (1, 30.0)}
    assert found == own
    # What outlasts the operation it began in takes no more than the rest of that.
    late = [done("first", 0, 10), done("late", 8, 10)]
    assert times(late) == {"first": (1, 8.0), "late": (1, 10.0)}


def test_tracks_run_beside_each_other_and_share_all_time():
    events = [done("one", 0, 30), done("two", 5, 10, tid=2)]
    assert times(events) == {"one": (1, 30.0), "two": (1, 10.0)}
    assert [one["share"] for one in operations.summarise(events)] == [0.75, 0.25]


def test_where_a_device_did_anything_operations_are_those_of_devices():
    events = [done("aten::conv2d", 0, 100), done("gemm", 10, 20, "kernel", tid=7)]
    events.append(done("Memcpy HtoD", 30, 20, "gpu_memcpy", tid=7))
    found = [(one["operation"], one["place"]) for one in operations.summarise(events)]
    assert found == [("Memcpy HtoD", "device"), ("gemm", "device")]
    assert operations.summarise(events[:1])[0]["place"] == "host"


def test_events_that_are_no_operations_do_not_count():
    events = [done("step", 0, 100, "user_annotation"), {"ph": "M", "name": "thread_name"}]
    assert operations.summarise([*events, done("add", 0, 5)])[0]["share"] == 1.0
    assert operations.summarise(events) == []


def test_operations_of_a_kind_count_together_where_events_say_their_kind():
    one, other = (done(f"fusion.{n}", 10 * n, 5, args={"operation": "fusion"}) for n in (1, 2))
    assert times([one, other]) == {"fusion": (2, 10.0)}


def test_the_operations_that_took_most_are_told_with_their_share_of_all():
    most = operations.MOST
    found = operations.summarise([done(f"op{n}", 1000 * n, 1 + n) for n in range(3 * most)])
    assert [one["operation"] for one in found] == [f"op{3 * most - n}" for n in range(1, most + 1)]
    assert sum(one["share"] for one in found) < 1


def test_a_name_is_one_short_plain_line():
    (one,) = operations.summarise([done("void\x1b[1m gemm<" + 500 * "x" + ">", 0, 1)])
    assert one["operation"].startswith("void gemm<xxx")
    assert len(one["operation"]) <= operations.MAX_CHARACTERS


def test_a_trace_is_read_from_its_file_and_half_of_one_is_refused(tmp_path):
    path = tmp_path / "trace.json.gz"
    whole = gzip.compress(json.dumps({"traceEvents": [done("add", 0, 5)]}).encode())
    path.write_bytes(whole)
    assert operations.read(path)[0]["operation"] == "add"
    path.write_bytes(whole[:-12])
    with pytest.raises(EOFError):
        operations.read(path)
