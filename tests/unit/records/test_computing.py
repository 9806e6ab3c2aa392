"""What a record says of the work of a run's model, from what the trainer counted."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from dlbench.log.event_fields import LogError, parse_event
from dlbench.log.event_log import EventLog, utc_now
from dlbench.records import parse_run, summaries
from dlbench.tables import table_columns
from dlbench.tables import table_columns as table_columns_module
from support.runs.parsed_runs import RUN, TWO, parsed, write

COUNTED = {"forward_flops_per_item": 100, "forward_values_per_item": 7, "flops_unknown": []}
TIMES = [9.0, 0.5, 0.5, 0.5]


def summary(start, mode="train", profile=(), **calibration):
    """Of a run whose first rank logged this."""
    log = SimpleNamespace(start=start, calibration=calibration, profile=dict(profile))
    return summaries.of_model(dataclasses.replace(RUN, mode=mode), log)


@pytest.mark.parametrize(
    ("mode", "again", "flops", "of_hardware"),
    [("train", 0, 300, None), ("train", 60, 300, 360), ("forward_backward", 60, 300, 360),
     ("forward", 60, 100, None)],
)  # fmt: skip
def test_a_step_that_learns_is_three_forward_passes_and_what_is_computed_again_is_no_work_of_it(
    mode, again, flops, of_hardware
):
    found = summary(COUNTED | {"recomputed_flops_per_item": again}, mode)
    assert (found["model_flops_per_item"], found["values_per_item"]) == (flops, 7)
    assert (found["hardware_flops_per_item"], found["flops_unknown"]) == (of_hardware, None)


def test_a_layer_without_a_rule_is_named_and_the_work_is_not_known():
    reasons = ["fft (FFT): there is no rule for it", "own (Own): TypeError: a symbol"]
    found = summary({"forward_flops_per_item": None, "flops_unknown": reasons})
    assert found["model_flops_per_item"] is None
    assert found["flops_unknown"] == "; ".join(reasons)


def test_a_record_has_what_its_log_counted_and_what_its_device_was_measured_to_attain(tmp_path):
    write(tmp_path, TIMES)
    record = parsed(tmp_path)  # of a log of before they were counted
    assert (record["status"], record["summary"]["model_flops_per_item"]) == ("ok", None)
    path = tmp_path / "train.jsonl"
    counted = '"forward_flops_per_item": 832080, "flops_unknown": [], "spec"'
    path.write_text(path.read_text().replace('"spec"', counted))
    log = EventLog(path)
    log.write("calibration", tflops=0.1, matrix_size=1024, gb_per_s=12.5, kept=True)
    log.close()
    found = parsed(tmp_path)["summary"]
    assert found["model_flops_per_item"] == 3 * 832_080
    assert (found["attainable_tflops"], found["attainable_gb_per_s"]) == (0.1, 12.5)
    unknown = summary({}, unknown="MemoryError: full")
    assert (unknown["attainable_tflops"], unknown["attainable_gb_per_s"]) == (None, None)


def test_a_record_has_the_trace_of_a_profile_or_why_there_is_none():
    assert "trace_file" not in summary({})
    found = summary({}, profile={"spent_s": 2.0, "steps": 5, "sha256": "0"})
    assert (found["trace_file"], found["trace_unknown"]) == ("trace.json.gz", None)
    assert found["profiled_steps"] == 5
    found = summary({}, profile={"spent_s": 2.0, "unknown": "no counters"})
    assert (found["trace_file"], found["trace_unknown"]) == (None, "no counters")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"forward_flops_per_item": -1}, "forward_flops_per_item to be a count"),
        *(({"event": "calibration", "tflops": n}, "tflops to be a rate above 0") for n in (0, "x")),
    ],
)
def test_a_count_or_rate_that_cannot_be_is_an_error_of_the_log(fields, expected):
    event = {"event": "run_start", "t_utc": utc_now(), "spec": {}, "spent_s": 1.0} | fields
    with pytest.raises(LogError, match=f"expected {expected}"):
        parse_event(json.dumps(event).encode())


def test_a_run_that_reads_alone_has_its_throughput_and_nothing_of_a_model(tmp_path):
    spec = dataclasses.replace(RUN, mode="input")
    write(tmp_path, TIMES, losses=[0.0] * 4)
    found = parsed(tmp_path, spec)["summary"]
    log = parse_run.RankLog(tmp_path / "train.jsonl")
    assert not any(event.keys() & set(summaries.OF_A_MODEL) for event in log.steps)
    assert found["images_per_second"] == spec.global_batch / 0.5
    nothing = ("final_loss", "compile_s", "model_flops_per_item")
    assert [found[name] for name in nothing] == [None] * 3


@pytest.mark.parametrize(("mode", "status"), [("input", "ok"), ("train", "unstable")])
def test_batches_that_come_in_bursts_are_no_stalled_steps_where_they_are_read_alone(
    tmp_path, mode, status
):
    write(tmp_path, [9.0, *[0.7, 0.1, 0.1] * 3])
    assert parsed(tmp_path, dataclasses.replace(RUN, mode=mode))["status"] == status


GIB = 2**30
GPUS = {"gpus": {"kinds": [{"name": "H100", "memory_bytes": 80 * GIB}]}}


def counted(allocated, reserved=None, **end):
    values = {"peak_allocated_bytes_per_device": allocated}
    return {**values, "peak_reserved_bytes_per_device": reserved, **end}


def described(folder, hardware=None, limit="unlimited", total=16 * GIB):
    """Add to a log what its rank said of its machine."""
    log = EventLog(folder / "train.jsonl")
    facts = {"hardware": hardware or {"gpus": {"kinds": []}}, "limits": {"memory_bytes": limit}}
    facts["present"] = {"host": "h", "cpus": [0], "gpus": [], "memory_bytes": total}
    log.write("machine", software={}, variables={}, unknown={}, **facts)
    log.close()


def test_the_peak_is_that_of_the_device_that_took_most_over_all_ranks(tmp_path):
    write(tmp_path, [0.5] * 3, 0, **counted([5, 7], [8, 8], peak_memory_bytes=100))
    write(tmp_path, [0.5] * 3, 1, **counted([6, 6], [9, 6], peak_memory_bytes=90))
    summary = parsed(tmp_path, TWO)["summary"]
    assert summary["peak_allocated_bytes_per_device"] == 7
    assert summary["peak_reserved_bytes_per_device"] == 9
    assert (summary["peak_memory_bytes"], summary["device_memory_unknown"]) == (100, None)


def test_one_rank_that_does_not_count_leaves_the_peak_unknown_with_its_reason(tmp_path):
    write(tmp_path, [0.5] * 3, 0, **counted([5], [8], peak_memory_bytes=100))
    write(tmp_path, [0.5] * 3, 1, **counted(None, device_memory_unknown="no allocator"))
    summary = parsed(tmp_path, TWO)["summary"]
    assert summary["peak_allocated_bytes_per_device"] is None
    assert summary["peak_reserved_bytes_per_device"] is None
    assert summary["device_memory_unknown"] == "no allocator"
    assert summary["peak_memory_bytes"] is summary["memory_limit_bytes"] is None


def test_what_nvml_saw_in_use_is_the_most_of_any_sample_on_any_gpu(tmp_path):
    write(tmp_path, [0.5] * 3)
    log = EventLog(tmp_path / "train.jsonl")
    for t_s, used in ((0.1, (3, 4)), (0.2, (9, None)), (0.3, (5, 2))):
        gpus = [{"gpu": i, "memory_used_bytes": value} for i, value in enumerate(used)]
        log.write("sample", t_s=t_s, gpus=gpus)
    log.close()
    assert parsed(tmp_path)["summary"]["peak_used_bytes_per_device"] == 9


@pytest.mark.parametrize(
    ("machine", "taken", "limit"),
    [
        ({}, None, 16 * GIB),
        ({"limit": 4 * GIB}, None, 4 * GIB),
        ({"limit": None}, None, 16 * GIB),
        ({"hardware": GPUS}, None, 80 * GIB),
        ({"hardware": GPUS}, 60 * GIB, 60 * GIB),
        ({"hardware": {"gpus": "lost"}, "total": None}, None, None),
        ({"limit": 10**400, "total": -5}, None, None),
    ],
    ids=["node", "group", "a group unseen", "GPU", "part of a GPU", "nothing", "no counts"],
)
def test_there_is_as_much_memory_as_gpu_or_node_and_group_have(tmp_path, machine, taken, limit):
    write(tmp_path, [0.5] * 3, device_memory_limit_bytes=taken)
    described(tmp_path, **machine)
    assert parsed(tmp_path)["summary"]["memory_limit_bytes"] == limit


def test_each_number_is_a_column_of_the_table_of_runs(tmp_path):
    write(tmp_path, [0.5] * 3)
    summary = parsed(tmp_path)["summary"]
    mine = {name for name in summary if "memory" in name or name.startswith("peak_")}
    assert (
        mine
        == {column.name for column in table_columns_module.MEMORY}
        < set(table_columns.RUNS.names)
    )
