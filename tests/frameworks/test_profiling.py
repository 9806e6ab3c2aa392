"""Profiles through each framework: one format, and the operations with the most time."""

import gzip
import json

import pytest

from dlbench.log import event_log
from support.trainers import framework_runs
from support.trainers.training_runs import events

SHORT = {"steps": 4, "warmup_steps": 2, "profile": True}
# How each framework's convolution is called on the host.
CONVOLUTION = {"jax": "onv", "pytorch": "convolution"}


@pytest.mark.parametrize("name", framework_runs.ALL)
def test_the_trace_and_its_operations_are_in_the_format_of_all(tmp_path, python, name):
    framework, log = framework_runs.ALL[name], tmp_path / "train.jsonl"
    found = framework.trained(
        log, python(name), model="lenet5", steps_per_sync=4, batch_per_device=32, **SHORT
    )
    assert [event["event"] for event in found[-2:]] == ["run_end", "profile"]
    (event,) = events(log, "profile")
    assert "unknown" not in event, event
    kinds = [one["operation"] for one in event["operations"]]
    assert any(CONVOLUTION[name] in kind for kind in kinds), kinds
    assert {one["place"] for one in event["operations"]} == {"host"}
    content = json.loads(gzip.decompress((tmp_path / event_log.TRACE).read_bytes()))
    done = [e for e in content["traceEvents"] if e["ph"] == "X"]
    assert {"pid", "tid", "ts", "dur", "name"} <= set.intersection(*map(set, done))
    assert any(e.get("cat") == "cpu_op" for e in done)
