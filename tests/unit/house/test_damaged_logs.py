"""Logs with any kind of damage: none becomes a result, and none makes a reader fail."""

import contextlib
import json
import random

import pytest

from dlbench.analysis import run_tables
from dlbench.campaign import doctor
from dlbench.common.files import sha256
from dlbench.log import event_fields, event_log
from dlbench.log.event_fields import LogError
from dlbench.plan import standing
from dlbench.records import costs, judgement, parse_run, run_record
from dlbench.records.judgement import State
from dlbench.starting import supervisor
from dlbench.study import config, other_trainers
from dlbench.study.runs import Run
from support.runs.ended_runs import ONE, SHORT, TWO, log_of
from support.runs.made_runs import SETTINGS
from support.trainers.watched_runs import END, watched

COPIES = Run(**SHORT, copies_per_node=2)
EXTERNAL = Run(**SHORT, trainer="theirs")
RUNS = (ONE, TWO, COPIES, EXTERNAL)
MACHINE = {
    "event": "machine", "hardware": {"gpus": {"kinds": []}}, "software": {"os": "x"},
    "libraries": {"libc": "2"}, "variables": {"A": "b"}, "unknown": {"x": "y"}, "gathered_s": 0.1,
    "limits": {"group_cpus": None, "cpu_time_cores": 2, "memory_bytes": "unlimited"},
    "present": {"host": "h", "cpus": [0], "gpus": []},
}  # fmt: skip
GPU = {"gpu": 0, "throttle_reasons": ["gpu_idle"], "power_w": 50.5, "energy_j": None}
COMPILE = {"event": "compile", "trace_s": 0.1}
SAMPLE = {"event": "sample", "t_s": 0.1, "cpu_percent": None, "memory_bytes": 5, "gpus": [GPU]}
EVAL = {"event": "eval", "epoch": 1, "step": 4, "t_s": 2.0, "split": "validation", "loss": "inf",
        "top1": 0.5, "examples": 360}  # fmt: skip
NUMBERS = {"images_per_second": 16.0, "step_time_median_s": 0.5, "final_loss": 2.0}
IMPORTED = {"event": "imported", "kind": "tf_cnn_benchmarks", "notes": ["a"], "numbers": NUMBERS}
LAUNCH = {
    "container": {"start": "directive", "digest": "sha256:1"}, "site": {"name": "here"},
    "job": {"scheduler": "nobody", "id": "1"}, "limits": MACHINE["limits"], "modules": ["a"],
    "command": ["b"],
}  # fmt: skip
JUNK = (None, True, [], {}, [[]], {"a": {}}, "", "x", "nan", "2026", -1, 0, 1, 0.5, 1e308, -1e308,
        10**400, 2**63, float("nan"), float("inf"), [10**30], "\ud800")  # fmt: skip
TRIED = 10  # of each run; more find more
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
TRAINERS = {"theirs": {"command": ["python3"], "log": "auto"}}


@pytest.fixture(autouse=True)
def study(project, monkeypatch):
    monkeypatch.setenv("PATH", "")  # no scheduler is asked for jobs that wait: it takes a process
    blocks = [{"name": f"block{i}", "repeats": 1, **run.values()} for i, run in enumerate(RUNS)]
    yield config.study(SETTINGS | {"trainers": TRAINERS, "matrix": blocks})
    other_trainers.register({})


def written(run):
    """The folder of a successful run with all kinds of events in its logs."""
    log = log_of(run)
    for path in event_log.rank_paths(log):
        events = [json.loads(line) for line in path.read_bytes().splitlines()]
        events[0] |= LAUNCH if events[0]["event"] == "launch" else {}
        if run is EXTERNAL:
            events = [*events[:2], MACHINE, *events[2:-1], IMPORTED, events[-1]]
        else:
            events = [*events[:-5], MACHINE, COMPILE, SAMPLE, *events[-5:-1], EVAL, events[-1]]
        path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    parse_run.parse(run, log, log.with_name("run.json"))
    return log.parent


def damaged(content, rng):
    lines = content.splitlines(keepends=True)
    number, place = rng.randrange(len(lines)), rng.randrange(len(content))
    kind = rng.randrange(8)
    if kind == 0:
        return content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :]
    if kind == 1:
        return content[:place] + content[place + rng.randrange(1, 40) :]
    if kind == 2:
        return b"".join(lines[:number] + lines[number + 1 :])
    if kind == 3:
        return b"".join(lines[: number + 1] + lines[rng.randrange(len(lines)) :])
    if kind == 4:
        lines.insert(number, rng.choice([b"\n", b"{}\n", b"\0\n", b'{"event": []}\n']))
        return b"".join(lines)
    event = json.loads(lines[number])
    inner = event
    while kind > 5 and (parts := [v for v in inner.values() if isinstance(v, dict) and v]):
        inner = rng.choice(parts)
    key = rng.choice([*inner])
    value = inner.pop(key)
    if kind == 5 and rng.random() < 0.5:
        inner[key + "x"] = value
    elif kind != 5:
        inner[key] = rng.choice(JUNK)
    lines[number] = f"{json.dumps(event)}\n".encode()
    return b"".join(lines)


@pytest.mark.parametrize("run", RUNS, ids=["one rank", "two ranks", "copies", "another trainer"])
def test_whatever_is_damaged_in_a_log_ends_nothing_and_is_no_result_beside_its_record(study, run):
    place = written(run)
    whole = {path.name: path.read_bytes() for path in place.iterdir()}
    rng = random.Random(17)
    for number in range(TRIED):
        name = rng.choice([name for name in whole if name.endswith(".jsonl")])
        content = damaged(whole[name], rng)
        for other, unchanged in whole.items():
            (place / other).write_bytes(content if other == name else unchanged)
        if content == whole[name]:
            continue
        state, reason = judgement.state(run)
        same_size = len(content) == len(whole[name])
        assert (state is State.CURRENT) is same_size, f"{number}: {state} {reason}"
        check_all_readers(study, place)
        (place / "run.json").unlink()
        state, reason = judgement.state(run)
        check_all_readers(study, place)
        if state is State.UNREAD:
            parse_run.parse(run, place / "train.jsonl", place / "run.json")
            state, reason = judgement.state(run)  # a status may be another one by now
            assert state is State.CURRENT or reason.startswith("was skipped and can be trained now")
            check_all_readers(study, place)
            run_tables.ensure_run_tables(run.id, sha256(place / "train.jsonl"))
            list(run_tables.eval_rows(run.id, place / "train.jsonl"))
        else:
            assert reason
            with contextlib.suppress(event_fields.LogError):
                parse_run.parse(run, place / "train.jsonl", place / "run.json")
        for path in place.glob("*.parquet"):
            path.unlink()


def check_all_readers(study, place):
    """Check that the doctor, the status and the supervisor can describe the runs."""
    for problem in doctor.of_runs(study, content=True):
        assert problem.line()
    assert {stand.run.id for stand in standing.examine(study)} == {run.id for run in study.runs}
    log = place / "train.jsonl"
    assert costs.describe(log)
    costs.duration_s(log)
    supervisor._end_of_ranks(log)


def read_again(run, log):
    """Do what the workflow does: parse the log if that is enough. Returns the record or None."""
    state, _ = judgement.state(run)
    if state is State.UNREAD:
        parse_run.parse(run, log, log.with_name("run.json"))
        return run_record.read(log.with_name("run.json"))
    assert state in (State.STALE, State.DAMAGED)
    return None


@pytest.mark.parametrize("run", [ONE, TWO], ids=["one rank", "two ranks"])
def test_a_log_that_is_cut_anywhere_is_trained_again(run):
    log = log_of(run)
    path = event_log.rank_paths(log)[-1]
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 29), *range(len(whole) - 9, len(whole))]:
        path.write_bytes(whole[:length])
        assert read_again(run, log) is None, f"believed with {length} of {len(whole)} bytes"
    path.write_bytes(whole)
    assert read_again(run, log)["status"] == "ok"


def test_a_run_whose_second_ranks_log_is_gone_is_trained_again():
    log = log_of(TWO)
    event_log.rank_path(log, 1).unlink()
    assert judgement.state(TWO)[0] is State.DAMAGED
    assert "logs of 2 devices expected, found those of 1" in judgement.state(TWO)[1]


def test_a_run_that_failed_is_read_again_though_a_rank_ended_without_a_word():
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
def test_a_line_that_is_no_event_is_named_and_the_run_trained_again(line, message):
    log = log_of(ONE)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:2], line + b"\n", *lines[2:]]))
    assert read_again(ONE, log) is None
    with pytest.raises(LogError, match=f"line 3: .*{message}"):
        list(event_log.read(log))


def test_a_record_with_any_byte_changed_is_not_believed():
    log = log_of(ONE)
    record = log.with_name("run.json")
    parse_run.parse(ONE, log, record)
    good = record.read_bytes()
    for place in range(0, len(good), 11):
        changed = good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]
        record.write_bytes(changed)
        with pytest.raises(run_record.RecordError):
            run_record.read(record)


def test_a_record_that_lacks_a_key_is_not_whole():
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
def test_a_good_run_is_no_failure_because_lines_of_its_log_are_gone_or_doubled(numbers, message):
    log = log_of(ONE)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[number] for number in numbers))
    state, reason = judgement.state(ONE)
    assert state is State.DAMAGED and message in reason
    with pytest.raises(LogError, match=message):
        parse_run.parse(ONE, log, log.with_name("run.json"))


def test_progress_is_that_of_the_lines_that_can_be_read():
    log = log_of(ONE)
    lines = log.read_bytes().splitlines(keepends=True)
    for line in UNREADABLE:
        log.write_bytes(b"".join([*lines[:4], line]))
        assert costs.describe(log) == "step 1/4, loss 2"
        assert (costs.duration_s(log), supervisor._end_of_ranks(log)) == (None, None)


@pytest.mark.usefixtures("impatient")
def test_a_run_whose_log_has_unreadable_lines_is_watched_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "SHOW_EVERY_S", 0.01)
    lines = log_of(ONE).read_bytes().splitlines(keepends=True)[2:4]
    log = tmp_path / "runs/run/train.jsonl"
    writes = f"open({str(log)!r}, 'ab').write({b''.join(lines + UNREADABLE)!r})\ntime.sleep(0.2)\n"
    run = watched(tmp_path, writes + END)
    assert supervisor.supervise(run)
    assert event_log.last_run_end(run.log)["status"] == "ok"
