"""The devices of this machine, or those that a study says it has."""

import functools
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

from dlbench.machine import limits


@dataclass(frozen=True)
class Devices:
    """The devices of one node: `kind` is cpu or gpu. `nodes` are the most that a run may have.

    Attributes:
        cores_quota: the quota of CPU time that limits `cores`; None if no quota does.
    """

    kind: str
    per_node: int | None
    cores: int
    nodes: int = 1
    cores_quota: float | None = None


def devices(site: dict[str, Any]) -> Devices:
    """The devices in the config's `site`; `auto` is resolved on this machine.

    A CPU device is `threads_per_device` cores, so `per_node` is None there
    unless the config gives it: it depends on the run.
    """
    gpus = _gpus() if "auto" in (site["device"], site["devices_per_node"]) else 0
    kind = site["device"] if site["device"] != "auto" else ("gpu" if gpus else "cpu")
    per_node = site["devices_per_node"]
    if per_node == "auto":
        per_node = gpus if kind == "gpu" else None
    cores, quota = site["cores_per_node"], None
    if cores == "auto":
        cores, quota = limits.usable_cores()
    return Devices(kind, per_node, cores, site["nodes"], quota)


@functools.cache
def _gpus():
    """How many GPUs the NVIDIA driver lists; 0 where there is no driver."""
    if not shutil.which("nvidia-smi"):
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
