"""Columns of the runs table on the share of its device's peak that a run attains.

- Achieved FLOP/s are those that the model needs for the items of the measured steps, over their
  time: data loading and all else included. MFU is their share of the device's peak
  (A. Chowdhery et al. (2022), PaLM, arXiv:2204.02311, appendix B).
- HFU: the same with the FLOPs of activations that are computed again, of runs that do.
- Arithmetic intensity: the same FLOPs over the bytes that the products read and write, each on its
  own: what they take and give of each item, and the model's weights once for a batch of a device.
  A step that learns has three times both, so it has that of its forward pass.
"""

from collections.abc import Mapping
from typing import Any

from dlbench.machine import device_peaks
from dlbench.study import other_trainers
from dlbench.study.runs import Run
from dlbench.trainer import model_flops

BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}  # of a number in products
TERA = 1e12


def columns(
    run: Run,
    summary: Mapping[str, Any],
    device_model: str | None,
    kind: str | None,
    site_peaks: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The columns of one run; None where a number is not known.

    Args:
        summary: of its record.
        kind: of its devices, cpu or gpu; None if unknown.
        site_peaks: peaks that the site states: see device_peaks.peak.
    """
    precision = other_trainers.precision(run)
    peak = device_peaks.peak(device_model, precision, kind, run.threads_per_device, site_peaks)
    flops, rate = summary.get("model_flops_per_item"), summary.get("images_per_second")
    achieved = flops * rate / run.devices / TERA if flops and rate else None
    executed_flops = summary.get("hardware_flops_per_item")
    executed = achieved * executed_flops / flops if achieved and flops and executed_flops else None
    return {
        "arithmetic_intensity": intensity(run, summary),
        "achieved_tflops_per_device": achieved,
        "device_peak_tflops": peak.tflops,
        "device_peak_source": peak.source,
        "device_memory_gb_per_s": peak.memory_gb_per_s,
        "mfu": _share(achieved, peak.tflops),
        "mfu_of_attainable": _share(achieved, summary.get("attainable_tflops")),
        "hfu": _share(executed, peak.tflops),
        "hfu_of_attainable": _share(executed, summary.get("attainable_tflops")),
    }


def intensity(run: Run, summary: Mapping[str, Any]) -> float | None:
    """FLOPs for each byte that products read and write; None if not known."""
    flops, values = summary.get("model_flops_per_item"), summary.get("values_per_item")
    weights, width = summary.get("parameters"), BYTES.get(other_trainers.precision(run) or "")
    if not flops or not values or weights is None or not width:
        return None
    forward = run.batch_per_device * flops / model_flops.PASSES[run.mode]
    return forward / (width * (run.batch_per_device * values + weights))


def _share(achieved, peak):
    return achieved / peak if achieved and peak else None
