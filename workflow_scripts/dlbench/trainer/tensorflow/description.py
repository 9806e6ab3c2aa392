"""On what a run is trained: devices, host, versions; and all that machine/facts.py gathers."""

import json
import os
import platform
from importlib import metadata

import keras
import numpy as np
import tensorflow as tf

from dlbench.machine import facts, host_name


def describe(strategy):
    """Plain values for run_start, and for resume where a part goes on elsewhere."""
    return {
        "devices": strategy.devices,
        "device_model": _device_model(strategy.devices),
        "cores": strategy.cores,
        "host": host_name.host(),
        "pid": os.getpid(),
        "load_average": os.getloadavg(),
        "platform": platform.platform(),
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "numpy": np.__version__,
            **{name: metadata.version(name) for name in strategy.packages},
        },
    }


def gather(strategy, packages=None):
    """Fields of the event `machine`.

    Args:
        packages: folder where the list of installed packages is kept; None: nowhere.
    """
    # The strategy has no part in it: its packages are in the list, as everybody else's.
    framework = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "tensorflow_build": json.loads(json.dumps(tf.sysconfig.get_build_info(), default=str)),
    }
    return facts.facts(strategy.gpus(), framework, packages)


def _device_model(devices):
    """What the devices are called by their maker: the GPU's name or the CPU's."""
    if "GPU" in devices[0]:
        gpu = tf.config.list_physical_devices("GPU")[0]
        return tf.config.experimental.get_device_details(gpu).get("device_name", "unknown GPU")
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown CPU"
