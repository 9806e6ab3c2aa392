"""The devices that the suite uses, and the description of the machine in its results."""

import importlib.util
import os
import platform
from importlib import metadata
from typing import Any, NamedTuple

from dlbench.machine import gpus, hardware
from dlbench.trainer import engine

PACKAGES = (
    *("torch", "triton", "jax", "jaxlib", "keras", "tensorflow", "numpy"),
    *("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "nvidia-ml-py",
)


class Device(NamedTuple):
    """The devices to check.

    Attributes:
        kind: cpu or gpu.
        gpus: UUIDs of the GPUs that this process sees, in CUDA's order.
    """

    kind: str
    gpus: tuple[str, ...] = ()

    @property
    def is_gpu(self) -> bool:
        return self.kind == "gpu"

    def missing(self, framework: str) -> list[str]:
        """The packages of a framework that this Python lacks."""
        return [n for n in engine.packages(framework) if not importlib.util.find_spec(n)]


def find(kind: str = "auto") -> Device:
    """The GPUs of this process according to NVML; the CPU if there are none or `kind` is cpu."""
    if kind == "cpu":
        return Device("cpu")
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    found = gpus.gather_facts(gpus.visible_gpus(0, count()), {})
    uuids = tuple(device["uuid"] for device in found["devices"])
    return Device("gpu" if uuids or kind == "gpu" else "cpu", uuids)


def count() -> int:
    """The number of GPUs according to NVML; 0 without NVML."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetCount()
    except Exception:
        return 0


def machine(device: Device) -> dict[str, Any]:
    """The description of the machine in the results: devices and versions, no host names."""
    facts = hardware.constant_facts(hardware.Files())
    found = gpus.gather_facts(device.gpus, {})
    memory = hardware.present_facts(hardware.Files())["memory_bytes"]
    return {
        "device": device.kind,
        "gpus": [f"{len(device.gpus)} x {kind['name']}" for kind in found["kinds"]],
        "driver": found["driver"],
        "cuda_driver": found["cuda_driver"],
        "cpu": facts["cpu"]["model"],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": hardware.installed_gib(memory),
        "virtual": facts["cpu"]["virtual"],
        "versions": {"Python": platform.python_version(), **_versions()},
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
