"""Logs with any kind of damage: none becomes a result, and none makes a reader fail."""

import contextlib
import json
import random

import pytest

from dlbench.analysis import run_tables
from dlbench.campaign import doctor_runs
from dlbench.common.files import sha256
from dlbench.log import event_fields, event_log
from dlbench.plan import standing
from dlbench.records import judgement, parse_run
from dlbench.records.judgement import State
from dlbench.study import config, other_trainers, trainer_environments
from dlbench.study.runs import Run
from support.runs.ended_runs import ONE, SHORT, TWO, log_of
from support.runs.made_runs import SETTINGS

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

TRAINERS = {"theirs": {"command": ["python3"], "log": "auto"}}


@pytest.fixture(autouse=True)
def study(tmp_path, monkeypatch):
    (tmp_path / "envs").symlink_to(trainer_environments.ENVIRONMENTS.resolve())
    monkeypatch.chdir(tmp_path)
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
    """The content of a log with one random damage."""
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
    """Check that the doctor and the status can describe the runs."""
    for problem in doctor_runs.problems(study, content=True):
        assert problem.line()
    assert {stand.run.id for stand in standing.examine(study)} == {run.id for run in study.runs}
