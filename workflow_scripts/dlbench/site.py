"""The machine: what counts as a device, how many there are, and which runs it cannot do."""

import functools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dlbench import copies, external, images, plugins, tools

ENVIRONMENTS = Path("envs")


@dataclass(frozen=True)
class Devices:
    """The devices of one node: `kind` is cpu or gpu. `nodes` are the most that a run may have."""

    kind: str
    per_node: int | None
    cores: int
    nodes: int = 1


def devices(site):
    """The devices the config's `site` names, `auto` answered by this machine.

    A CPU device is `threads_per_device` cores, so `per_node` is None there
    unless the config gives it: it depends on the run.
    """
    gpus = _gpus() if "auto" in (site["device"], site["devices_per_node"]) else 0
    kind = site["device"] if site["device"] != "auto" else ("gpu" if gpus else "cpu")
    per_node = site["devices_per_node"]
    if per_node == "auto":
        per_node = gpus if kind == "gpu" else None
    cores = site["cores_per_node"]
    if cores == "auto":
        cores = len(os.sched_getaffinity(0))  # those this process may use
    return Devices(kind, per_node, cores, site["nodes"])


def skip_reason(run, devices, image_settings=None):
    """Why this machine cannot do a run, or None where it can.

    The reason says what to do about it, where something can be done.

    Args:
        image_settings: the config's `images`.
    """
    strategy = plugins.load("strategies", run.strategy).Strategy
    launcher = plugins.load("launchers", run.launcher)
    return (
        strategy.unsupported(run)
        or launcher.unsupported(run)
        or copies.unsupported(run, strategy)
        or _no_such_numbers(run, devices)
        or _too_few_devices(run, devices)
        or external.unsupported(run)
        or _missing_package(run, strategy, image_settings or {})
    )


def trainer_python(environment):
    """The Python of a trainer's environment, relative to the workflow's folder."""
    return ENVIRONMENTS / environment / ".venv" / "bin" / "python"


def _no_such_numbers(run, devices):
    if run.precision == "tf32" and devices.kind == "cpu":
        return "precision tf32 is one of NVIDIA's GPUs; the devices of this site are CPUs"
    return None


def _too_few_devices(run, devices):
    if run.nodes > devices.nodes:
        return f"needs {run.nodes} nodes; this site has {devices.nodes} (site.nodes)"
    wanted = run.copies_per_node * run.devices_per_node
    packed = f"{run.copies_per_node} copies on " if run.copies_per_node > 1 else ""
    if devices.per_node is not None and wanted > devices.per_node:
        of = f" ({packed}{run.devices_per_node})" if packed else ""
        return (
            f"needs {wanted} {devices.kind} devices per node{of}; this site has {devices.per_node}"
        )
    cores = wanted * run.threads_per_device
    if devices.kind == "cpu" and cores > devices.cores:
        return (
            f"needs {cores} cores ({packed}{run.devices_per_node} CPU devices of "
            f"{run.threads_per_device}); a node of this site offers {devices.cores}"
        )
    return None


def _missing_package(run, strategy, image_settings):
    if plugins.load("runtimes", run.runtime).CONTAINED:
        return images.unsupported(run, image_settings)
    for package in () if external.is_external(run) else strategy.packages:
        if not _installed(package, run.environment):
            return (
                f"{package} is not installed in envs/{run.environment}; install it with: "
                + tools.uv_command(
                    f"sync --project envs/{run.environment} --frozen --extra {package}"
                )
            )
    return None


@functools.cache
def _installed(package, environment):
    python = trainer_python(environment)
    found = python.parents[1].glob(f"lib/python3*/site-packages/{package}/__init__.py")
    return python.exists() and any(found)  # without its Python it is made anew, without extras


@functools.cache
def _gpus():
    """How many GPUs the NVIDIA driver lists; 0 where there is no driver."""
    if not shutil.which("nvidia-smi"):
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
