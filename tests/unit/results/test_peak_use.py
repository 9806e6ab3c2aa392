"""How far a run is from what its device can do."""

import dataclasses

import pytest

from dlbench.results import run_rows
from dlbench.study.runs import Run

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
