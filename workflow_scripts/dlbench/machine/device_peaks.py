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

NVIDIA = "NVIDIA, {} datasheet".format
BLACKWELL = "NVIDIA, Blackwell datasheet, one GPU of {}".format
ULTRA = "NVIDIA, Blackwell Ultra datasheet, one GPU of {}".format
AMD = "AMD, Instinct {} data sheet".format
HALF = ", one of its two GPUs"
WHITEPAPER = "NVIDIA, {} GPU architecture whitepaper, appendix A".format


class Device(NamedTuple):
    """A row: its names as drivers report them, TFLOP/s by precision, 10^9 bytes a second of its
    memory, and the document that states them."""

    pattern: str
    tflops: dict[str, float]
    memory_gb_per_s: float
    source: str


class Peak(NamedTuple):
    """TFLOP/s of a device in a precision, and 10^9 bytes a second of its memory, None if unknown;
    their source, or why one is unknown."""

    tflops: float | None
    memory_gb_per_s: float | None
    source: str


def _tensor(float32, tf32, half, float8=None, nvfp4=None):
    """Of tensor cores that take both kinds of 16 bits, and maybe 8; with `nvfp4` also MXFP8."""
    halves = {"bfloat16": half, "float16": half}
    short = {"float8": float8, "mxfp8": float8 if nvfp4 is not None else 0, "nvfp4": nvfp4}
    peaks = {"float32": float32, "tf32": tf32, **halves, **short}
    return {name: tflops for name, tflops in peaks.items() if tflops}


# The first pattern that matches a name is used.
DEVICES = (
    Device(r"GH200", _tensor(67, 494.7, 989.4, 1979), 4000, NVIDIA("GH200 Grace Hopper")),
    Device(r"GB300", _tensor(80, 1250, 2500, 5000, 15000), 8000, ULTRA("GB300 NVL72")),
    # Of its NVFP4, NVIDIA's pages have several numbers.
    Device(r"B300", _tensor(75, 1125, 2250, 4500, 0), 7700, ULTRA("HGX B300")),
    Device(r"GB200", _tensor(80, 1250, 2500, 5000, 10000), 8000, BLACKWELL("GB200 NVL72")),
    # The page of HGX B200 has 18 PFLOPS of TF32 with sparsity for its eight GPUs.
    Device(r"B200", _tensor(75, 1125, 2250, 4500, 9000), 7700, BLACKWELL("HGX B200")),
    Device(r"H200 NVL", _tensor(60, 417.5, 835.5, 1670.5), 4800, NVIDIA("H200")),
    Device(r"H200", _tensor(67, 494.7, 989.4, 1979), 4800, NVIDIA("H200")),
    Device(r"H100 NVL", _tensor(60, 417.5, 835.5, 1670.5), 3900, NVIDIA("H100")),
    # What is made for China has slower links, or slower numbers of 64 bits.
    Device(r"H[18]00 PCIe", _tensor(51.2, 378, 756, 1513), 2000, NVIDIA("H100 PCIe")),
    Device(r"H100.*HBM3|H[18]00(.SXM|$)", _tensor(66.9, 494.7, 989.4, 1979), 3350, NVIDIA("H100")),
    Device(r"A[18]00(.*80GB PCIe|-PCIE-80GB)", _tensor(19.5, 156, 312), 1935, NVIDIA("A100")),
    Device(r"A[18]00.*80GB", _tensor(19.5, 156, 312), 2039, NVIDIA("A100")),
    Device(r"A[18]00.*40GB", _tensor(19.5, 156, 312), 1555, NVIDIA("A100")),
    Device(r"\bA40\b", _tensor(37.4, 74.8, 149.7), 696, NVIDIA("A40")),
    Device(r"\bA30\b", _tensor(10.3, 82, 165), 933, NVIDIA("A30")),
    Device(r"\bA10\b", _tensor(31.2, 62.5, 125), 600, NVIDIA("A10")),
    Device(r"\bL40S\b", _tensor(91.6, 183, 362.05, 733), 864, NVIDIA("L40S")),
    Device(r"\bL40\b", _tensor(90.5, 90.5, 181.05, 362), 864, NVIDIA("L40")),
    Device(r"\bL4\b", _tensor(30.3, 60, 121, 242.5), 300, NVIDIA("L4")),
    Device(r"V100S", {"float32": 16.4, "float16": 130}, 1134, NVIDIA("V100")),
    Device(r"V100-SXM", {"float32": 15.7, "float16": 125}, 900, NVIDIA("V100")),
    Device(r"V100-PCIE", {"float32": 14, "float16": 112}, 900, NVIDIA("V100")),
    Device(r"P100-SXM2", {"float32": 10.6, "float16": 21.2}, 732, NVIDIA("P100")),
    Device(r"P100-PCIE-16GB", {"float32": 9.3, "float16": 18.7}, 732, NVIDIA("P100")),
    Device(r"P100-PCIE-12GB", {"float32": 9.3, "float16": 18.7}, 549, NVIDIA("P100")),
    Device(r"Tesla T4\b", {"float32": 8.1, "float16": 65}, 320, NVIDIA("T4")),
    Device(r"Tesla K80", {"float32": 4.37}, 240, NVIDIA("K80") + HALF),
    # Others follow with a further word in their names: Ti, D, Laptop GPU.
    Device(r"RTX 5090$", _tensor(104.8, 104.8, 209.5), 1792, WHITEPAPER("RTX Blackwell")),
    Device(r"RTX 4090$", _tensor(82.6, 82.6, 165.2), 1008, WHITEPAPER("Ada")),
    Device(r"RTX 3090$", _tensor(35.6, 35.6, 71), 936, WHITEPAPER("Ampere GA102")),
    Device(r"MI355X", _tensor(157.3, 0, 2516.6, 5033.2, 0), 8000, AMD("MI355X")),
    Device(r"MI350X", _tensor(144.2, 0, 2306.9, 4613.7, 0), 8000, AMD("MI350X")),
    Device(r"MI325X", _tensor(163.4, 0, 1307.4, 2614.9), 6000, AMD("MI325X")),
    Device(r"MI300X", _tensor(163.4, 0, 1307.4, 2614.9), 5300, AMD("MI300X")),
    Device(r"MI300A", _tensor(122.6, 0, 980.6, 1961.2), 5300, AMD("MI300A")),
    # Each half is a device of its own.
    Device(r"MI250X", _tensor(47.9, 0, 191.5), 1638, AMD("MI250X") + HALF),
    Device(r"MI250\b", _tensor(45.3, 0, 181), 1638, AMD("MI250") + HALF),
    Device(r"GPU Max 1550", _tensor(26.2, 209.7, 419.4), 1638, "Intel, Max 1550 page" + HALF),
)


def peak(
    device_model: str | None,
    precision: str | None,
    kind: str | None = None,
    threads: int = 1,
    site_tflops: Mapping[str, Any] | None = None,
) -> Peak:
    """The peak rates of a device in a precision.

    `kind`: cpu, gpu, or None if unknown; `threads`: cores that a device has if it is a CPU;
    `site_tflops`: TFLOP/s by precision that the site states: of a GPU, or of one core of a CPU.

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
    """The entry of a device in our table; None if there is none, as of a slice of one (MIG)."""
    if " MIG " in device_model:
        return None
    return next((device for device in DEVICES if re.search(device.pattern, device_model)), None)
