"""What a record says of the work of a run's model, from what the trainer counted."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from dlbench.log.event_fields import LogError
from dlbench.log.event_log import EventLog
from dlbench.records import computing, parse_run
from support.runs.parsed_runs import RUN, parsed, write

COUNTED = {"forward_flops_per_item": 100, "forward_values_per_item": 7, "flops_unknown": []}


def logged(start, **calibration):
    """What is read of the first rank's log."""
    return SimpleNamespace(start=start, calibration=calibration, profile={})


@pytest.mark.parametrize(
    ("mode", "flops"), [("forward", 100), ("forward_backward", 300), ("train", 300)]
)
def test_a_step_that_learns_is_three_forward_passes(mode, flops):
    summary = computing.summary(dataclasses.replace(RUN, mode=mode), logged(COUNTED))
    assert (summary["model_flops_per_item"], summary["values_per_item"]) == (flops, 7)
    assert summary["flops_unknown"] is None


@pytest.mark.parametrize(
    ("mode", "again", "done"),
    [("train", 60, 360), ("forward_backward", 60, 360), ("forward", 60, None), ("train", 0, None)],
)
def test_what_is_computed_again_is_work_of_the_hardware_alone(mode, again, done):
    start = COUNTED | {"recomputed_flops_per_item": again}
    summary = computing.summary(dataclasses.replace(RUN, mode=mode), logged(start))
    assert summary["hardware_flops_per_item"] == done
    assert summary["model_flops_per_item"] == (100 if mode == "forward" else 300)


def test_a_layer_without_a_rule_is_named_and_the_work_is_not_known():
    reasons = ["fft (FFT): there is no rule for it", "own (Own): TypeError: a symbol"]
    start = {"forward_flops_per_item": None, "flops_unknown": reasons}
    summary = computing.summary(RUN, logged(start))
    assert summary["model_flops_per_item"] is None
    assert summary["flops_unknown"] == "; ".join(reasons)


def test_a_log_of_before_they_were_counted_still_makes_a_record(tmp_path):
    write(tmp_path, [9.0, 0.5, 0.5, 0.5])
    record = parsed(tmp_path)
    assert record["status"] == "ok"
    assert record["summary"]["model_flops_per_item"] is None


def test_a_record_has_what_its_log_counted(tmp_path):
    write(tmp_path, [9.0, 0.5, 0.5, 0.5])
    path = tmp_path / "train.jsonl"
    counted = '"forward_flops_per_item": 832080, "flops_unknown": [], "spec": {}'
    path.write_text(path.read_text().replace('"spec": {}', counted))
    assert parsed(tmp_path)["summary"]["model_flops_per_item"] == 3 * 832_080


def test_a_count_that_is_no_count_is_an_error_of_the_log(tmp_path):
    log = EventLog(tmp_path / "train.jsonl")
    log.start(spec=RUN.values(), forward_flops_per_item=-1)
    log.close()
    with pytest.raises(LogError, match="expected forward_flops_per_item to be a count"):
        parsed(tmp_path)


def test_a_record_has_what_its_device_was_measured_to_attain(tmp_path):
    write(tmp_path, [9.0, 0.5, 0.5, 0.5])
    log = EventLog(tmp_path / "train.jsonl")
    log.write("calibration", tflops=0.1, matrix_size=1024, gb_per_s=12.5, kept=True)
    log.close()
    summary = parsed(tmp_path)["summary"]
    assert (summary["attainable_tflops"], summary["attainable_gb_per_s"]) == (0.1, 12.5)


def test_a_device_that_could_not_be_measured_attains_nothing_that_is_known():
    summary = computing.summary(RUN, logged({}, unknown="MemoryError: full"))
    assert (summary["attainable_tflops"], summary["attainable_gb_per_s"]) == (None, None)


@pytest.mark.parametrize("tflops", [0, -1.0, "fast"])
def test_a_rate_that_is_none_is_an_error_of_the_log(tmp_path, tflops):
    log = EventLog(tmp_path / "train.jsonl")
    log.start(spec=RUN.values())
    log.write("calibration", tflops=tflops)
    log.close()
    with pytest.raises(LogError, match="expected tflops to be a rate above 0"):
        parsed(tmp_path)


OPERATION = {"operation": "Conv2D", "place": "host", "count": 5, "spent_s": 0.5, "share": 0.25}


def test_a_record_has_the_operations_of_a_profile_or_why_there_are_none():
    known = {"spent_s": 2.0, "steps": 5, "sha256": "0", "operations": [OPERATION]}
    log = logged({})
    assert "operations" not in computing.summary(RUN, log)
    log.profile = known
    summary = computing.summary(RUN, log)
    assert (summary["trace_file"], summary["trace_unknown"]) == ("trace.json.gz", None)
    assert (summary["profiled_steps"], summary["operations"]) == (5, [OPERATION])
    log.profile = {"spent_s": 2.0, "unknown": "no counters"}
    summary = computing.summary(RUN, log)
    assert (summary["trace_file"], summary["trace_unknown"]) == (None, "no counters")
    assert summary["operations"] == []


@pytest.mark.parametrize("wrong", [{"count": 0}, {"spent_s": -1.0}, {"place": None}, {"more": 1}])
def test_an_operation_that_cannot_be_is_an_error_of_the_log(tmp_path, wrong):
    log = EventLog(tmp_path / "train.jsonl")
    log.start(spec=RUN.values())
    log.write("profile", spent_s=1.0, operations=[OPERATION | wrong])
    log.close()
    with pytest.raises(LogError, match="expected operations to be a list of entries"):
        parsed(tmp_path)


def test_a_run_that_reads_alone_has_its_throughput_and_nothing_of_a_model(tmp_path):
    write(tmp_path, [9.0, 0.5, 0.5, 0.5], losses=[0.0] * 4)
    path = tmp_path / "train.jsonl"
    spec = dataclasses.replace(RUN, mode="input")
    path.write_text(path.read_text().replace('"spec": {}', f'"spec": {json.dumps(spec.values())}'))
    log = parse_run.RankLog(path)
    assert not any(event.keys() & set(computing.OF_A_MODEL) for event in log.steps)
    summary = parse_run.content(spec, [log])["summary"]
    assert summary["images_per_second"] == spec.global_batch / 0.5
    nothing = ("final_loss", "compile_s", "model_flops_per_item")
    assert [summary[name] for name in nothing] == [None] * 3


@pytest.mark.parametrize(("mode", "status"), [("input", "ok"), ("train", "unstable")])
def test_batches_that_come_in_bursts_are_no_stalled_steps_where_they_are_read_alone(
    tmp_path, mode, status
):
    write(tmp_path, [9.0, *[0.7, 0.1, 0.1] * 3])
    assert parsed(tmp_path, dataclasses.replace(RUN, mode=mode))["status"] == status
