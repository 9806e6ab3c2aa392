"""What a run is trained on: devices, host, versions, and the facts of machine/facts.py."""

import os
import platform
from importlib import metadata
from typing import Any

import numpy as np

from dlbench.machine import device_peaks, facts, hardware
from dlbench.trainer import containment
from dlbench.trainer import engine as frameworks
from dlbench.trainer.engine import Engine
from dlbench.trainer.strategy import Spec


def describe(engine: Engine) -> dict[str, Any]:
    """Plain values for the events run_start and resume."""
    strategy = engine.strategy
    return {
        "devices": strategy.devices,
        "device_model": engine.gpu_name() if engine.gpu_count else _cpu_name(),
        "cores": strategy.cores,
        "binding": strategy.binding.describe() if strategy.binding else None,
        "host": hardware.host(),
        "pid": os.getpid(),
        "load_average": os.getloadavg(),
        "platform": platform.platform(),
        "versions": {
            "python": platform.python_version(),
            **engine.versions(),
            "numpy": np.__version__,
            **{name: metadata.version(name) for name in strategy.packages},
        },
    }


def gather(engine: Engine, packages: str | None = None) -> dict[str, Any]:
    """Fields of the event `machine`; the list of installed packages is saved in a folder."""
    # The strategy's packages are left out here: the list of installed packages has them.
    software = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        **engine.versions(),
        "numpy": np.__version__,
        **engine.build_facts(),
        **({} if containment.IMAGE_MARKER.exists() else facts.origin()),
    }
    return facts.gather(
        engine.strategy.gpus(), software, packages, variables=frameworks.variables()
    )


def device_without_peak(spec: Spec, engine: Engine) -> dict[str, Any] | None:
    """What identifies a device whose peak is in no table; None if a table has it."""
    described = describe(engine)
    kind = "gpu" if engine.gpu_count else "cpu"
    if device_peaks.peak(described["device_model"], spec.precision, kind).tflops:
        return None
    return {
        "device_model": described["device_model"],
        "hardware": hardware.speed_facts(hardware.Files("/")),
        "versions": described["versions"],
        "precision": spec.precision,
        "threads_per_device": spec.threads_per_device if kind == "cpu" else None,
    }


def _cpu_name() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown CPU"
