"""The devices that the suite runs on, and what the head of its results says of the machine."""

import importlib.util
import os
import platform
from importlib import metadata
from typing import Any, NamedTuple

from dlbench.machine import gpu_facts, gpu_readings, hardware
from dlbench.trainer import engine

PACKAGES = (
    *("torch", "triton", "jax", "jaxlib", "keras", "tensorflow", "numpy"),
    *("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "nvidia-ml-py",
)


class Device(NamedTuple):
    """Attributes:
    kind: cpu or gpu.
    gpus: UUIDs of those that this process sees, in CUDA's order.
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
    """The GPUs of this process by NVML; the CPU where there are none, or where it is asked for."""
    if kind == "cpu":
        return Device("cpu")
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    found = gpu_facts.gather(gpu_readings.visible_gpus(0, count()), {})
    uuids = tuple(device["uuid"] for device in found["devices"])
    return Device("gpu" if uuids or kind == "gpu" else "cpu", uuids)


def count() -> int:
    """GPUs that NVML counts; 0 without it."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetCount()
    except Exception:
        return 0


def machine(device: Device) -> dict[str, Any]:
    """What the head of the results says: devices and versions, without names of hosts."""
    facts = hardware.constant_facts(hardware.Files())
    gpus = gpu_facts.gather(device.gpus, {})
    memory = hardware.present_facts(hardware.Files())["memory_bytes"]
    return {
        "device": device.kind,
        "gpus": [f"{len(device.gpus)} x {kind['name']}" for kind in gpus["kinds"]],
        "driver": gpus["driver"],
        "cuda_driver": gpus["cuda_driver"],
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
