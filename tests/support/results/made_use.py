"""Use of devices by synthetic runs: matrix products and memory."""

import numpy as np

FLOPS = {"resnet50": 23.2e9, "lenet5": 2.5e6, "vgg16": 92.8e9, "alexnet": 4.9e9}
PEAKS = {"float32": 19.5, "tf32": 156.0, "float16": 312.0, "bfloat16": 312.0}
# Bytes that a model's weights take in float32, and what each item adds to them.
WEIGHTS = {"resnet50": 102e6, "lenet5": 0.25e6, "vgg16": 553e6, "alexnet": 244e6}
ITEM = {"resnet50": 88e6, "lenet5": 0.3e6, "vgg16": 118e6, "alexnet": 9e6}
# What a row has of memory.
MEMORY = (
    *("peak_allocated_bytes_per_device", "peak_reserved_bytes_per_device"),
    *("peak_used_bytes_per_device", "peak_memory_bytes"),
)
# What a row has of its device's peak.
USE = (
    *("model_flops_per_item", "arithmetic_intensity", "achieved_tflops_per_device", "mfu"),
    *("attainable_tflops", "attainable_gb_per_s", "mfu_of_attainable"),
)


def of_device(row, rate):
    """Numbers of a GPU whose maker states its peak, or of a CPU that was measured."""
    flops = FLOPS.get(row["model"])
    if not flops or row["timing_source"] != "dlbench":
        return {}
    achieved = flops * rate / row["devices"] / 1e12
    use = {"model_flops_per_item": flops, "achieved_tflops_per_device": achieved}
    use["arithmetic_intensity"] = 60 * row["batch_per_device"] / (row["batch_per_device"] + 25)
    if row["model"] == "lenet5":
        measured = {"attainable_tflops": 0.062, "attainable_gb_per_s": 9.5}
        return use | measured | {"mfu_of_attainable": achieved / 0.062}
    peak = PEAKS.get(row["precision"])
    stated = {"device_peak_tflops": peak, "device_memory_gb_per_s": 1555.0}
    return use | (stated | {"mfu": achieved / peak} if peak else {})


def of_memory(row):
    """Peaks of a GPU of 80 GiB, or of a process on a CPU; nothing where they are not known."""
    if row["timing_source"] != "dlbench":
        return {}
    tokens = np.prod([int(size) for size in (row["item_shape"] or "1").split("x")])
    of_item = ITEM.get(row["model"], 120e3 * tokens)
    factor = {"float32": 1.0, "tf32": 1.0}.get(row["precision"], 0.55)
    factor *= {"jax": 0.8, "pytorch": 1.15}.get(row["framework"], 1.0)
    arrays = 3 * WEIGHTS.get(row["model"], 500e6) + factor * row["batch_per_device"] * of_item
    host = 1.1e9 + 0.002 * arrays
    if row["device_kind"] == "cpu":
        return {"peak_memory_bytes": int(host + arrays), "memory_limit_bytes": 16 * 2**30}
    reserved = None if row["framework"] == "tensorflow" else int(1.12 * arrays)
    peaks = (int(arrays), reserved, int(1.12 * arrays + 6e8), int(host))
    return dict(zip(MEMORY, peaks, strict=True)) | {"memory_limit_bytes": 80 * 2**30}
