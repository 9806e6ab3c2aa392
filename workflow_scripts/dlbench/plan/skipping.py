"""Which runs of a study this machine cannot do, and why; its devices, or those of the site."""

import functools
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

from dlbench.common import plugins, tools
from dlbench.images import trainer_image
from dlbench.machine import limits
from dlbench.records import judgement
from dlbench.study import launching, other_trainers, trainer_environments
from dlbench.study.config import Study
from dlbench.study.runs import Run
from dlbench.trainer import copies, engine, profiling, schedule, updates
from dlbench.trainer.reading import inputs


@dataclass(frozen=True)
class Devices:
    """The devices of one node: `kind` is cpu or gpu. `nodes` are the most that a run may have.

    `cores_quota`: the quota of CPU time that limits `cores`; None if no quota does.
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


def cannot_run(
    run: Run, devices: Devices, image_settings: dict[str, Any] | None = None
) -> str | None:
    """Why this machine cannot do a run, and the remedy if there is one; None if it can.

    `image_settings`: the config's `images`.
    """
    return next(filter(None, _checks(run, devices, image_settings or {})), None)


def _checks(run, devices, image_settings):
    """Yield what each check says of a run, in this order: a reason, or None."""
    strategy = engine.strategy_of(run)
    if not run.is_external:
        yield engine.unsupported(run)
        yield inputs.unsupported_text(run)
    yield strategy.unsupported(run)
    yield plugins.load("launchers", run.launcher).unsupported(run)
    yield copies.unsupported(run, strategy)
    yield schedule.unsupported(run, strategy)
    if not run.is_external:
        yield updates.unsupported(run, strategy)
        yield inputs.unsupported(run, strategy)
    yield profiling.unsupported(run, strategy)
    if devices.kind == "cpu":
        yield _needs_gpus(run)
    if run.power_limit_w and (run.nodes > 1 or launching.starts_elsewhere(run.launcher)):
        yield (
            "power_limit_w is set on the node of the process that supervises a run, and this run "
            "has others: choose one node and a launcher other than kubernetes, or leave it out"
        )
    yield _too_few_devices(run, devices)
    yield other_trainers.unsupported(run)
    yield trainer_environments.missing_python(run)
    yield _missing_package(run, strategy, image_settings)
    yield started_elsewhere(run)


def started_elsewhere(run: Run) -> str | None:
    """Why a run that pods start is skipped by the workflow; None for any other."""
    if not launching.starts_elsewhere(run.launcher):
        return None
    return (
        f"launcher {run.launcher} needs the pods of a Job: write it with "
        f"`dlbench kubernetes-job {run.id}`"
    )


def _needs_gpus(run):
    if run.precision == "tf32":
        return "precision tf32 is one of NVIDIA's GPUs; the devices of this site are CPUs"
    if run.compile_mode == "cuda_graphs" and not run.is_external:
        return "compile_mode cuda_graphs needs GPUs; the devices of this site are CPUs"
    if run.power_limit_w is not None:
        return (
            "power_limit_w is of GPUs; the devices of this site are CPUs, which are some cores of "
            "a processor, and Linux limits whole processors"
        )
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
        quota = (
            f": its control group has a quota of {devices.cores_quota:g} cores of CPU time"
            if devices.cores_quota is not None
            else ""
        )
        return (
            f"needs {cores} cores ({packed}{run.devices_per_node} CPU devices of "
            f"{run.threads_per_device}); a node of this site offers {devices.cores}{quota}"
        )
    return None


def _missing_package(run, strategy, image_settings):
    if plugins.load("runtimes", run.runtime).CONTAINED:
        return trainer_image.unsupported(run, image_settings)
    for package in () if run.is_external else (*strategy.packages, *inputs.packages(run)):
        if not trainer_environments.has_package(package, run.environment):
            extras = trainer_environments.extras()
            if package not in extras.get(run.environment, {package}):
                having = [name for name, extra in extras.items() if package in extra]
                return (
                    f"envs/{run.environment} has no {package}, and offers none as an extra; "
                    f"environments that do: {', '.join(having)}"
                )
            return (
                f"{package} is not installed in envs/{run.environment}; install it with: "
                + tools.dlbench_command(f"environment envs/{run.environment} --extra {package}")
            )
    return None


def skip_reason(run: Run, devices: Devices, study: Study) -> str | None:
    """Why a run of a study is skipped: it cannot be done here, or is not needed; None if it is."""
    reason = cannot_run(run, devices, study.images)
    if not reason and run.id in study.where_installed:
        reason = _not_installed(run)
    if not reason and run.id in study.targets:
        return judgement.not_needed(judgement.earlier_repeats(run), study.targets[run.id])
    if not reason and run.probe:  # a probe is useless if all runs that it explains are skipped
        reasons = [skip_reason(each, devices, study) for each in study.explained_by(run)]
        return reasons[0] if reasons and all(reasons) else None
    return reason


def _not_installed(run):
    """Why a run with where_installed is skipped: its environment is not installed; else None."""
    contained = plugins.load("runtimes", run.runtime).CONTAINED
    is_installed = trainer_environments.is_installed(run.environment)
    if contained or not trainer_environments.has_environment(run) or is_installed:
        return None
    return (
        f"envs/{run.environment} is not installed here (where_installed); install it with: "
        + tools.dlbench_command(f"environment envs/{run.environment}")
    )
