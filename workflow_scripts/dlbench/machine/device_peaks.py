"""Peak rates of devices, as their makers state them: dense matrix products and memory bandwidth.

- TFLOP/s by the precision of a run, without sparsity and with sums in float32; of tensor or matrix
  cores where a device has them for this precision. float32 is that of plain cores: a run of
  precision float32 does not use TF32 (docs/methodology.md).
- If a maker states a rate with sparsity only, half of it is given here.
- CPUs have no entry: their peak depends on clocks that nobody guarantees. They are measured
  (dlbench/trainer/calibration.py).
- Devices without a row, and precisions that a row lacks, are unknown.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

NVIDIA = "NVIDIA, {} datasheet"
BLACKWELL = "NVIDIA, Blackwell datasheet, one GPU of {}"
WHITEPAPER = "NVIDIA, {} GPU architecture whitepaper, appendix A"


class Device(NamedTuple):
    """A row of the table.

    Attributes:
        pattern: regular expression for its name as drivers and frameworks report it.
        tflops: by precision.
        memory_gb_per_s: bandwidth of its memory, 10^9 bytes.
        source: document that states the numbers.
    """

    pattern: str
    tflops: dict[str, float]
    memory_gb_per_s: float
    source: str


class Peak(NamedTuple):
    """The peak rates of a run's device.

    Attributes:
        tflops: TFLOP/s of one device in the precision of the run; None if unknown.
        memory_gb_per_s: of its memory; None if unknown.
        source: of the numbers; where one is unknown, the reason.
    """

    tflops: float | None
    memory_gb_per_s: float | None
    source: str


def _tensor(float32, tf32, half):
    """Of devices whose tensor cores take TF32 and both kinds of 16 bits."""
    return {"float32": float32, "tf32": tf32, "bfloat16": half, "float16": half}


# The first pattern that matches a name is used.
DEVICES = (
    Device(r"GH200", _tensor(67, 494.7, 989.4), 4000, NVIDIA.format("GH200 Grace Hopper")),
    Device(r"GB200", _tensor(80, 1250, 2500), 8000, BLACKWELL.format("GB200 NVL72")),
    # The page of HGX B200 has 18 PFLOPS of TF32 with sparsity for its eight GPUs.
    Device(r"B200", _tensor(75, 1125, 2250), 7700, BLACKWELL.format("HGX B200")),
    Device(r"H200 NVL", _tensor(60, 417.5, 835.5), 4800, NVIDIA.format("H200")),
    Device(r"H200", _tensor(67, 494.7, 989.4), 4800, NVIDIA.format("H200")),
    Device(r"H100 NVL", _tensor(60, 417.5, 835.5), 3900, NVIDIA.format("H100")),
    Device(r"H100 PCIe", _tensor(51.2, 378, 756), 2000, NVIDIA.format("H100 PCIe")),
    Device(r"H100.*HBM3|H100 SXM", _tensor(66.9, 494.7, 989.4), 3350, NVIDIA.format("H100")),
    Device(r"A100.*80GB PCIe|A100-PCIE-80GB", _tensor(19.5, 156, 312), 1935, NVIDIA.format("A100")),
    Device(r"A100.*80GB", _tensor(19.5, 156, 312), 2039, NVIDIA.format("A100")),
    Device(r"A100.*40GB", _tensor(19.5, 156, 312), 1555, NVIDIA.format("A100")),
    Device(r"\bA40\b", _tensor(37.4, 74.8, 149.7), 696, NVIDIA.format("A40")),
    Device(r"\bA30\b", _tensor(10.3, 82, 165), 933, NVIDIA.format("A30")),
    Device(r"\bA10\b", _tensor(31.2, 62.5, 125), 600, NVIDIA.format("A10")),
    Device(r"\bL40S\b", _tensor(91.6, 183, 362.05), 864, NVIDIA.format("L40S")),
    Device(r"\bL40\b", _tensor(90.5, 90.5, 181.05), 864, NVIDIA.format("L40")),
    Device(r"\bL4\b", _tensor(30.3, 60, 121), 300, NVIDIA.format("L4")),
    Device(r"V100S", {"float32": 16.4, "float16": 130}, 1134, NVIDIA.format("V100")),
    Device(r"V100-SXM", {"float32": 15.7, "float16": 125}, 900, NVIDIA.format("V100")),
    Device(r"V100-PCIE", {"float32": 14, "float16": 112}, 900, NVIDIA.format("V100")),
    Device(r"P100-SXM2", {"float32": 10.6, "float16": 21.2}, 732, NVIDIA.format("P100")),
    Device(r"P100-PCIE-16GB", {"float32": 9.3, "float16": 18.7}, 732, NVIDIA.format("P100")),
    Device(r"P100-PCIE-12GB", {"float32": 9.3, "float16": 18.7}, 549, NVIDIA.format("P100")),
    Device(r"Tesla T4\b", {"float32": 8.1, "float16": 65}, 320, NVIDIA.format("T4")),
    Device(r"Tesla K80", {"float32": 4.37}, 240, NVIDIA.format("K80") + ", one of its two GPUs"),
    # Others follow with a further word in their names: Ti, D, Laptop GPU.
    Device(r"RTX 5090$", _tensor(104.8, 104.8, 209.5), 1792, WHITEPAPER.format("RTX Blackwell")),
    Device(r"RTX 4090$", _tensor(82.6, 82.6, 165.2), 1008, WHITEPAPER.format("Ada")),
    Device(r"RTX 3090$", _tensor(35.6, 35.6, 71), 936, WHITEPAPER.format("Ampere GA102")),
    Device(
        r"MI300X",
        {"float32": 163.4, "bfloat16": 1307.4, "float16": 1307.4},
        5300,
        "AMD, Instinct MI300X data sheet",
    ),
    Device(
        r"MI250X",
        {"float32": 47.9, "bfloat16": 191.5, "float16": 191.5},
        1638,
        "AMD, Instinct MI250X data sheet, one of its two GPUs",
    ),
)


def peak(
    device_model: str | None,
    precision: str | None,
    kind: str | None = None,
    threads: int = 1,
    site_tflops: Mapping[str, Any] | None = None,
) -> Peak:
    """The peak rates of a device in a precision.

    Args:
        device_model: name of the device; None if unknown.
        kind: cpu, gpu, or None if unknown.
        threads: cores that a device has if it is a CPU.
        site_tflops: TFLOP/s by precision that the site states: of a GPU, or of one core of a CPU.

    >>> peak("NVIDIA A100-SXM4-40GB", "bfloat16").tflops
    312
    >>> peak("Some CPU", "float32", "cpu", threads=4, site_tflops={"float32": 0.1}).tflops
    0.4
    """
    known = _known(device_model or "")
    bandwidth = known.memory_gb_per_s if known else None
    if precision is None:
        return Peak(None, bandwidth, "nobody states the precision")
    if stated := (site_tflops or {}).get(precision):
        cores = threads if kind == "cpu" else 1
        return Peak(cores * stated, bandwidth, "site.device_peak_tflops")
    if known and precision in known.tflops:
        return Peak(known.tflops[precision], bandwidth, known.source)
    if known:
        return Peak(None, bandwidth, f"{device_model} has no peak for {precision} in our table")
    if kind == "cpu":
        return Peak(None, None, "a CPU's peak is not stated: see mfu_of_attainable")
    return Peak(None, None, f"{device_model or 'the device'} is not in our table of peaks")


@functools.cache  # a study has thousands of runs and few devices
def _known(device_model):
    """The entry of a device in our table; None if there is none."""
    return next((device for device in DEVICES if re.search(device.pattern, device_model)), None)
