"""Profiles of TensorFlow's runs: a trace beside the log, and a run that is not affected."""

import gzip
import json

import pytest

from dlbench.log import event_log
from dlbench.records import parse_run
from dlbench.study.runs import Run
from support.trainers.training_runs import TWO_DEVICES, events, train

SHORT = {"steps": 4, "warmup_steps": 2, "seed": 3}


def profiled(log, data=None, **fields):
    """The event `profile` of a run that ends well."""
    finished = train(log, data, profile=True, **SHORT | fields)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    (event,) = events(log, "profile")
    return event


def names(log):
    """The names of what a trace has beside its log, in the order of time."""
    content = json.loads(gzip.decompress(log.with_name(event_log.TRACE).read_bytes()))
    done = [event for event in content["traceEvents"] if event["ph"] == "X"]
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in done)
    return [event["name"] for event in done]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "how", [{}, {"steps_per_sync": 2}, {"xla": True}], ids=["steps", "windows", "xla"]
)
def test_the_operations_of_five_steps_are_told(how, tmp_path):
    log = tmp_path / "train.jsonl"
    event = profiled(log, **how)
    assert event["steps"] == 5
    kinds = [one["operation"] for one in event["operations"]]
    assert any("onv" in kind for kind in kinds), kinds
    assert {one["place"] for one in event["operations"]} == {"host"}
    assert all(one["count"] % 5 == 0 for one in event["operations"] if "onv" in one["operation"])
    assert len(names(log)) > 50


def test_a_profile_changes_nothing_that_was_measured(digits, tmp_path):
    logs = [tmp_path / name / "train.jsonl" for name in ("plain", "profiled")]
    how = {"dataset": "digits", "evaluate": "yes", "deterministic": True}
    assert train(logs[0], digits, **SHORT, **how).returncode == 0
    profiled(logs[1], digits, **how)
    plain, traced = logs
    for kind, value in (("step", "loss"), ("eval", "loss"), ("run_end", "weights_sha256")):
        assert [e[value] for e in events(plain, kind)] == [e[value] for e in events(traced, kind)]
    kinds = [event["event"] for event in event_log.read(traced)]
    assert kinds[-2:] == ["run_end", "profile"]
    run = Run(model="lenet5", batch_per_device=8, profile=True, **SHORT, **how)
    parse_run.parse(run, traced, tmp_path / "profiled/run.json")
    record = json.loads((tmp_path / "profiled/run.json").read_text())
    assert record["status"] in ("ok", "unstable")
    assert record["summary"]["steps_measured"] == SHORT["steps"]
    assert record["summary"]["duration_s"] == events(traced, "run_end")[0]["t_s"]
    assert record["files"].keys() == {"train.jsonl", "trace.json.gz"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", TWO_DEVICES, ids=lambda how: "-".join(how.values()))
def test_all_ranks_take_the_steps_and_the_first_one_traces_them(how, tmp_path):
    log = tmp_path / "train.jsonl"
    event = profiled(log, devices_per_node=2, **how)
    assert event["steps"] == 5 and event["operations"]
    counts = [len(events(path, "profile")) for path in event_log.rank_paths(log)]
    assert counts == [1] + [0] * (len(counts) - 1)


def test_a_profile_that_fails_leaves_a_run_that_ended_well_and_the_reason(tmp_path):
    log = tmp_path / "train.jsonl"
    log.with_name(event_log.TRACE).mkdir()  # in the place of the trace
    event = profiled(log)
    assert event["unknown"].startswith("IsADirectoryError") and "sha256" not in event
    assert events(log, "run_end")[0]["status"] == "ok"
