"""The event `machine` of a log: hardware, software and limits of a process, read at its start.

    hardware    facts that nodes of one kind share: processor, memory, network, GPUs
    software    system, digest of the installed packages, framework
    limits      how much of the node this process may use
    libraries   versions of the libraries that the process has loaded
    variables   of the environment, by an allow-list (redaction.py)
    present     of this node at this moment: host, clocks, GPUs' UUIDs, the CPUs it may use
    unknown     why facts are None
    gathered_s  how long reading the facts took

The first five are compared between repeats; fingerprints.py has digests of the first two.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlbench.machine import gpus as gpus_module
from dlbench.machine import hardware, limits, redaction, software


def gather(
    gpus: Sequence[int | str] = (),
    framework: dict[str, Any] | None = None,
    packages: str | Path | None = None,
    root: str | Path = "/",
    variables: redaction.Variables = redaction.NO_MORE,
) -> dict[str, Any]:
    """The fields of the event.

    Args:
        gpus: selectors of the GPUs of this process (gpu_readings.visible_gpus).
        framework: facts of Python and the framework, plain values; None if another program
            trains, with another Python.
        packages: folder in which the list of installed packages is saved; None: nowhere.
        root: of the file system whose /proc and /sys are read.
        variables: of frameworks, those that are recorded.
    """
    start = time.perf_counter()
    files = hardware.Files(root)
    of_gpus = gpus_module.gather_facts(gpus, files.unknown)
    kinds = {name: of_gpus[name] for name in ("driver", "cuda_driver", "kinds")}
    if framework is None:
        sha256, files.unknown["software.packages_sha256"] = None, "another program's"
    else:
        sha256 = files.fact("software.packages_sha256", lambda: _packages(packages))
    return {
        "hardware": hardware.constant_facts(files) | {"gpus": kinds},
        "software": software.system(files) | (framework or {}) | {"packages_sha256": sha256},
        "limits": limits.read(files),
        "libraries": files.fact("libraries", lambda: _libraries(files)),
        "variables": redaction.recorded_variables(more=variables),
        "present": {
            **hardware.present_facts(files),
            "cpus": sorted(os.sched_getaffinity(0)),
            "gpus": of_gpus["devices"],
            "gpu_links": of_gpus["links"],
        },
        "unknown": files.unknown,
        "gathered_s": round(time.perf_counter() - start, 6),
    }


def _libraries(files):
    return software.loaded_libraries(files.text("proc/self/maps"))


def _packages(folder):
    return software.keep_list(software.installed_packages(), folder)
