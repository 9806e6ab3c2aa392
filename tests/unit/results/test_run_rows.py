"""run_rows: the row of a run in the table of runs is what its record says."""

import dataclasses
from types import SimpleNamespace

import pytest

from dlbench.analysis import run_tables
from dlbench.common.run_fields import FIELDS
from dlbench.log import event_log
from dlbench.log.event_log import EventLog
from dlbench.records import run_record
from dlbench.results import run_rows
from dlbench.study import other_trainers
from dlbench.study.runs import Run
from dlbench.tables import table_columns
from support.runs import parsed_runs

STUDY = SimpleNamespace(name="s", site={"name": "here"}, must_reach={}, with_found_batch=None)


def record_of(folder, **fields):
    folder.mkdir()
    parsed_runs.write(folder, [0.5] * 4)
    record = parsed_runs.parsed(folder)
    return record | {"spec": record["spec"] | fields}


def test_settings_of_a_row_are_those_of_the_record(tmp_path):
    row = run_rows.row(record_of(tmp_path / "run"), STUDY, "cpu", tmp_path)
    known = [name for name in FIELDS if name in table_columns.RUNS.names]
    assert len(known) > 40
    assert [row[name] for name in known] == [getattr(parsed_runs.RUN, name) for name in known]
    assert (row["run_id"], row["devices"], row["global_batch"]) == (parsed_runs.RUN.id, 1, 32)
    assert (row["study"], row["site"], row["device_kind"]) == ("s", "here", "cpu")
    # What other settings make of a run follows from its record.
    row = run_rows.row(record_of(tmp_path / "2", devices_per_node=2, seed=7), STUDY, "", tmp_path)
    assert (row["devices"], row["global_batch"], row["seed"]) == (2, 64, 7)
    assert row["run_id"] != parsed_runs.RUN.id
    with pytest.raises(TypeError, match="colour"):
        run_rows.row(record_of(tmp_path / "no", colour="red"), STUDY, "cpu", tmp_path)


def test_errors_of_gpus_that_the_kernel_logged_are_counted_and_noted(tmp_path):
    lost = {"gpu": "0000:3b:00", "xid": 79, "message": "GPU has fallen off the bus."}
    for rank, xids in enumerate(([], [lost, lost, {**lost, "xid": 31, "message": ""}])):
        parsed_runs.write(tmp_path, [0.5] * 3, rank)
        log = EventLog(event_log.rank_path(tmp_path / "train.jsonl", rank))
        log.write("sample", t_s=1.0, **({"xids": xids} if xids else {}))
        log.close()
    record = parsed_runs.parsed(tmp_path, parsed_runs.TWO)
    run_record.check(record)
    assert run_rows.row(record, STUDY, "gpu", tmp_path)["notes"] == (
        "the kernel logged errors of its GPUs: 2 x Xid 79 of GPU 0000:3b:00 on its node (GPU has "
        "fallen off the bus.), 1 x Xid 31 of GPU 0000:3b:00 on its node"
    )
    assert [*run_tables.sample_rows({"event": "sample", "t_s": 1.0, "xids": xids})] == [
        {"t_s": 1.0}
    ]


@pytest.mark.parametrize(("status", "judged"), [("failed", True), ("skipped", False)])
def test_a_run_that_was_skipped_misses_no_learning_gate(tmp_path, status, judged):
    record = record_of(tmp_path / "run") | {"status": status}
    study = SimpleNamespace(**vars(STUDY) | {"must_reach": {record["run_id"]: {"top1": 0.9}}})
    row = run_rows.row(record, study, "cpu", tmp_path)
    expected = "missed: top1 not evaluated, expected at least 0.9" if judged else None
    assert row["learning_gate"] == expected


@pytest.mark.parametrize(
    ("model", "dataset", "expected"),
    [
        ("gpt_tiny", "bytes", 3.0),
        ("gpt_tiny", "text_books", 3.0),
        ("lstm_ptb", "ptb", 3 / 5.42),
        ("bert_base", "bytes", None),  # of masked tokens alone
        ("gone", "bytes", None),
        ("gpt_tiny", "gone", None),
    ],
)
def test_bits_per_byte_are_known_where_the_bytes_of_a_token_are(tmp_path, model, dataset, expected):
    record = record_of(tmp_path / "run", model=model, dataset=dataset)
    record["summary"]["perplexity"] = 8.0
    found = run_rows.row(record, STUDY, "cpu", tmp_path)["bits_per_byte"]
    assert found == (expected and pytest.approx(expected))


@pytest.mark.parametrize(
    ("token_bytes", "perplexity", "expected"),
    [(4, 16.0, 1.0), ("{width} / 2", 16.0, 0.5), (None, 16.0, None), (None, 0.0, None)],
)
def test_the_bytes_of_another_programs_tokens_are_those_that_the_config_says(
    tmp_path, token_bytes, perplexity, expected
):
    theirs = {"command": ["true"], "log": "auto", "bytes_per_token": token_bytes}
    other_trainers.register({"theirs": theirs}, ["width"])
    record = record_of(tmp_path / "run", trainer="theirs", trainer_parameters="width=16")
    record["summary"]["perplexity"] = perplexity
    assert run_rows.row(record, STUDY, "cpu", tmp_path)["bits_per_byte"] == expected
    other_trainers.register({})


RUN = Run(model="resnet50", dataset="synthetic", batch_per_device=64, devices_per_node=2, steps=9)
RUN = dataclasses.replace(RUN, strategy="mirrored", precision="float16")
SUMMARY = {
    "images_per_second": 2000.0,
    "model_flops_per_item": 24e9,
    "values_per_item": 30_000_000,
    "parameters": 25_000_000,
}
V100 = "Tesla V100-SXM2-32GB"


def test_mfu_is_the_share_of_the_peak_that_the_models_operations_need():
    columns = run_rows.use_of_peak(RUN, SUMMARY, V100, "gpu")
    assert columns["achieved_tflops_per_device"] == pytest.approx(24.0)
    assert (columns["device_peak_tflops"], columns["device_memory_gb_per_s"]) == (125, 900)
    assert columns["mfu"] == pytest.approx(24 / 125)
    assert columns["mfu_of_attainable"] is None


def test_hfu_counts_what_is_computed_again_and_mfu_does_not():
    summary = SUMMARY | {"hardware_flops_per_item": 32e9, "attainable_tflops": 96.0}
    columns = run_rows.use_of_peak(RUN, summary, V100, "gpu")
    assert columns["mfu"] == pytest.approx(24 / 125)
    assert columns["hfu"] == pytest.approx(32 / 125)
    assert columns["hfu_of_attainable"] == pytest.approx(32 / 96)
    plain = run_rows.use_of_peak(RUN, SUMMARY, V100, "gpu")
    assert (plain["hfu"], plain["hfu_of_attainable"]) == (None, None)


def test_on_a_cpu_the_measured_peak_stands_in_and_says_so():
    summary = SUMMARY | {"attainable_tflops": 96.0}
    columns = run_rows.use_of_peak(RUN, summary, "A CPU", "cpu")
    assert (columns["mfu"], columns["mfu_of_attainable"]) == (None, 0.25)
    assert "mfu_of_attainable" in columns["device_peak_source"]


def test_intensity_counts_what_products_read_and_write_and_weights_once_a_batch():
    values = 64 * 30_000_000 + 25_000_000
    expected = 64 * 8e9 / (2 * values)
    assert run_rows.intensity(RUN, SUMMARY) == pytest.approx(expected)
    forward = dataclasses.replace(RUN, mode="forward")
    summary = SUMMARY | {"model_flops_per_item": 8e9}
    assert run_rows.intensity(forward, summary) == pytest.approx(expected)
    long = dataclasses.replace(RUN, precision="float32")
    assert run_rows.intensity(long, SUMMARY) == pytest.approx(expected / 2)


def test_without_a_precision_that_somebody_states_there_is_no_share():
    run = dataclasses.replace(RUN, trainer="theirs", precision="float32")
    columns = run_rows.use_of_peak(run, SUMMARY, "NVIDIA H100 80GB HBM3", "gpu")
    assert columns["achieved_tflops_per_device"] == pytest.approx(24.0)
    names = ("device_peak_tflops", "mfu", "arithmetic_intensity")
    assert [columns[name] for name in names] == [None] * 3
    assert columns["device_peak_source"] == "nobody states the precision"


@pytest.mark.parametrize("name", ["model_flops_per_item", "images_per_second"])
def test_without_a_count_or_a_rate_there_is_no_share(name):
    columns = run_rows.use_of_peak(RUN, SUMMARY | {name: None}, V100, "gpu")
    assert columns["achieved_tflops_per_device"] is None
    assert columns["mfu"] is None
    assert columns["device_peak_tflops"] == 125
    columns = run_rows.use_of_peak(RUN, {}, None, None)
    assert (columns["mfu"], columns["arithmetic_intensity"]) == (None, None)
    assert columns["device_peak_source"] == "the device is not in our table of peaks"
