"""The event `machine` of a log: on what and with what a process runs, gathered once, at its start.

    hardware    facts that equal nodes share: processor, memory, network, GPUs
    software    system, packages' digest, framework
    limits      how much of the node this process may use
    libraries   versions of those that it has loaded
    variables   of the environment, by an allow-list (redaction.py)
    present     this node and this moment: host, clocks, GPUs' UUIDs, which CPUs it may use
    unknown     why something is not known
    gathered_s  what this took

The first five are compared between repeats; fingerprints are of the first two (fingerprints.py).
Needs the standard library only, and for GPUs nvidia-ml-py.
"""

import os
import time

from dlbench.machine import gpu_facts, hardware, limits, redaction, software


def facts(gpus=(), framework=None, packages=None, root="/"):
    """What the event says.

    Args:
        gpus: selectors of the GPUs of this process (gpu_sampling.visible_gpus).
        framework: facts of Python and the framework, plain values; None where another program
            trains, whose Python is not this one.
        packages: folder where the list of installed packages is kept; None: nowhere.
    """
    began = time.perf_counter()
    files = hardware.Files(root)
    found = gpu_facts.gpus(gpus, files.unknown)
    kinds = {name: found[name] for name in ("driver", "cuda_driver", "kinds")}
    if framework is None:
        listed, files.unknown["software.packages_sha256"] = None, "another program's"
    else:
        listed = files.ask("software.packages_sha256", lambda: _packages(packages))
    return {
        "hardware": hardware.constant(files) | {"gpus": kinds},
        "software": software.system(files) | (framework or {}) | {"packages_sha256": listed},
        "limits": limits.limits(files),
        "libraries": files.ask("libraries", lambda: software.loaded(files.text("proc/self/maps"))),
        "variables": redaction.variables(),
        "present": {
            **hardware.present(files),
            "cpus": sorted(os.sched_getaffinity(0)),
            "gpus": found["devices"],
            "gpu_links": found["links"],
        },
        "unknown": files.unknown,
        "gathered_s": round(time.perf_counter() - began, 6),
    }


def _packages(folder):
    return software.keep(software.packages(), folder)
