"""A profile of TensorFlow's run: a trace beside the log, and a run that is not affected."""

import gzip
import json

import pytest

from dlbench.log import event_log
from dlbench.records import parse_run
from dlbench.study.runs import Run
from support.trainers.training_runs import events, train


@pytest.mark.ci
def test_a_profile_tells_the_operations_and_changes_nothing_that_was_measured(digits, tmp_path):
    how = {"dataset": "digits", "batch_per_device": 8, "steps": 4, "warmup_steps": 2, "seed": 3,
           "evaluate": "yes", "deterministic": True}  # fmt: skip
    plain, traced = (tmp_path / name / "train.jsonl" for name in ("plain", "traced"))
    for log, profile in ((plain, False), (traced, True)):
        finished = train(log, digits, profile=profile, **how)
        assert finished.returncode == 0, finished.stderr
    for kind, value in (("step", "loss"), ("eval", "loss"), ("run_end", "weights_sha256")):
        assert [e[value] for e in events(plain, kind)] == [e[value] for e in events(traced, kind)]
    *_, end, profile = event_log.read(traced)
    assert (end["event"], profile["event"], profile["steps"]) == ("run_end", "profile", 5)
    assert {one["place"] for one in profile["operations"]} == {"host"}
    convolutions = [one for one in profile["operations"] if "onv" in one["operation"]]
    assert convolutions and all(one["count"] % 5 == 0 for one in convolutions)
    content = json.loads(gzip.decompress(traced.with_name(event_log.TRACE).read_bytes()))
    done = [event for event in content["traceEvents"] if event["ph"] == "X"]
    assert len(done) > 50 and all(event["ts"] >= 0 and event["dur"] >= 0 for event in done)
    run = Run(model="lenet5", profile=True, **how)
    parse_run.parse(run, traced, tmp_path / "traced/run.json")
    record = json.loads((tmp_path / "traced/run.json").read_text())
    assert record["status"] in ("ok", "unstable")
    assert record["summary"]["steps_measured"] == 4
    assert record["summary"]["duration_s"] == end["t_s"]
    assert record["files"].keys() == {"train.jsonl", "trace.json.gz"}
