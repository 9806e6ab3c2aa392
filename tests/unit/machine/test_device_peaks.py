"""device_peaks: the table of peak rates."""

import pytest

from dlbench.machine import device_peaks
from dlbench.machine.device_peaks import DEVICES

# As drivers tell them.
NAMES = {
    "NVIDIA GH200 480GB": 989.4,
    "NVIDIA B200": 2250,
    "NVIDIA H200": 989.4,
    "NVIDIA H200 NVL": 835.5,
    "NVIDIA H100 80GB HBM3": 989.4,
    "NVIDIA H100 PCIe": 756,
    "NVIDIA H100 NVL": 835.5,
    "NVIDIA A100-SXM4-40GB": 312,
    "NVIDIA A100-SXM4-80GB": 312,
    "NVIDIA A100-PCIE-40GB": 312,
    "NVIDIA A100 80GB PCIe": 312,
    "NVIDIA A40": 149.7,
    "NVIDIA A30": 165,
    "NVIDIA A10": 125,
    "NVIDIA L40S": 362.05,
    "NVIDIA L40": 181.05,
    "NVIDIA L4": 121,
    "Tesla V100-SXM2-32GB": 125,
    "Tesla V100-PCIE-16GB": 112,
    "Tesla V100S-PCIE-32GB": 130,
    "Tesla P100-SXM2-16GB": 21.2,
    "Tesla T4": 65,
    "NVIDIA GB200": 2500,
    "NVIDIA GB300": 2500,
    "NVIDIA B300 SXM6 AC": 2250,
    "NVIDIA H100": 989.4,
    "NVIDIA H100-SXM5-80GB": 989.4,
    "NVIDIA H800": 989.4,
    "NVIDIA H800 PCIe": 756,
    "NVIDIA A800-SXM4-80GB": 312,
    "NVIDIA H100 64GB HBM2": None,
    "NVIDIA A100-SXM-64GB": None,
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": None,
    "NVIDIA A100-SXM4-40GB MIG 3g.20gb": None,
    "NVIDIA GeForce RTX 3090": 71,
    "NVIDIA GeForce RTX 4090": 165.2,
    "NVIDIA GeForce RTX 5090": 209.5,
    "AMD Instinct MI300X": 1307.4,
    "AMD Instinct MI300A": 980.6,
    "AMD Instinct MI325X": 1307.4,
    "AMD Instinct MI350X": 2306.9,
    "AMD Instinct MI355X": 2516.6,
    "AMD Instinct MI250X": 191.5,
    "AMD INSTINCT MI250 (MCM) OAM AC MBA": 181,
    "Intel(R) Data Center GPU Max 1550": 419.4,
}


def test_devices_are_known_by_the_names_that_drivers_tell():
    for name, half in NAMES.items():
        assert device_peaks.peak(name, "float16", "gpu").tflops == half, name


def test_memory_tells_apart_devices_that_compute_alike():
    bandwidths = [
        device_peaks.peak(name, "float32").memory_gb_per_s
        for name in ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe")
    ]
    assert bandwidths == [1555, 2039, 1935]
    assert device_peaks.peak("NVIDIA B200", "float32").memory_gb_per_s == 7700
    assert device_peaks.peak("NVIDIA GB200", "float32").memory_gb_per_s == 8000


def test_a_device_is_not_taken_for_a_faster_one_with_the_same_number():
    for name in ("RTX 3090 Ti", "RTX 4090 D", "RTX 4090 Laptop GPU", "RTX 5090 D"):
        peak = device_peaks.peak(f"NVIDIA GeForce {name}", "float16", "gpu")
        assert (peak.tflops, peak.memory_gb_per_s) == (None, None)


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.pattern)
def test_each_row_has_numbers_above_nothing_that_grow_as_numbers_get_shorter_and_a_source(device):
    peaks = [
        device.tflops.get(name, 0) for name in ("float32", "tf32", "float16", "float8", "nvfp4")
    ]
    assert all(number > 0 for number in device.tflops.values())
    assert sorted(filter(None, peaks)) == list(filter(None, peaks))
    assert device.memory_gb_per_s > 100
    assert device.source.startswith(("NVIDIA, ", "AMD, ", "Intel, "))
    assert device.tflops.get("mxfp8", 0) in (0, device.tflops.get("float8"))


@pytest.mark.parametrize(
    ("name", "kind", "precision", "reason"),
    [
        ("A CPU @ 2 GHz", "cpu", "float32", "a CPU's peak is not stated: see mfu_of_attainable"),
        ("NVIDIA Z9", "gpu", "float32", "NVIDIA Z9 is not in our table of peaks"),
        (None, "gpu", "float32", "the device is not in our table of peaks"),
        ("Tesla V100-SXM2-16GB", "gpu", "bfloat16", "Tesla V100-SXM2-16GB has no peak for bfloat1"),
    ],
)
def test_what_is_unknown_has_a_reason(name, kind, precision, reason):
    peak = device_peaks.peak(name, precision, kind)
    assert peak.tflops is None
    assert peak.source.startswith(reason)


def test_the_site_has_the_last_word_of_a_gpu_and_of_each_core_of_a_cpu():
    site_tflops = {"float32": 0.05}
    on_cpu = device_peaks.peak("A CPU", "float32", "cpu", threads=4, site_tflops=site_tflops)
    assert on_cpu.tflops == pytest.approx(0.2)
    on_gpu = device_peaks.peak("NVIDIA H200", "float32", "gpu", threads=4, site_tflops=site_tflops)
    assert (on_gpu.tflops, on_gpu.source) == (0.05, "site.device_peak_tflops")
    assert device_peaks.peak("NVIDIA H200", "tf32", "gpu", site_tflops=site_tflops).tflops == 494.7
