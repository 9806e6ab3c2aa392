"""One process of a program of others, bound as our trainer binds itself, before the program starts.

- On GPUs a process gets an equal share of the node's cores near its GPUs; on CPUs the cores that
  make up its devices (dlbench/machine/binding.py, dlbench/trainer/strategy.py).
- All processes of a node see the GPUs of the run on it, in one order, since programs take the one
  with the number of their local rank; or each sees its own alone, if the config says so.
- OMP_NUM_THREADS is the size of the share, unless it is set.
- Under srun, too, it gets the variables that torchrun sets (RANK, WORLD_SIZE, LOCAL_RANK,
  LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), which many programs read.
- It gets the variables of programs/logger/dlbench_log.py.
- What it was bound to goes into a hidden file, which train_external.py puts into the run's log.

It runs outside of containers, whose processes inherit cores and variables; but those of Docker, a
daemon's children, no cores.
"""

import argparse
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from dlbench import Error
from dlbench.machine import binding, gpus, hardware
from dlbench.study import other_trainers
from dlbench.study.runs import Run
from dlbench.trainer import cluster, engine

NODE, OWN = "node", "own"  # which GPUs a process sees
COPY = "DLBENCH_COPY"  # of start_processes.py


class Place(NamedTuple):
    """The rank of a process, and its number among those of its node."""

    rank: int
    local_rank: int


def start(run: Run, options: argparse.Namespace, command: list[str]) -> NoReturn:
    """Bind this process by the flags of start_bound.py, and replace it by a command.

    Raises Error: it cannot have its share of the cores or GPUs, or the command cannot be started.
    """
    # Here, since mpirun hands variables on to no other node.
    os.environ.update(other_trainers.log_variables(run, options.output))
    place = place_of(run, os.environ)
    described = None
    if place:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # NVML's order, which samples them
        described = _bind(run, place, options)
        os.environ.update(_rendezvous(run, place, os.environ))
        path = options.output / other_trainers.BOUND.format(place.rank)
        path.write_text(json.dumps(described), encoding="utf-8")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise Error(f"{command[0]} cannot be started: {error.strerror}") from None


def place_of(run: Run, environ: Mapping[str, str]) -> Place | None:
    """The Place of this process by the variables of its launcher; None if they do not say."""
    names = cluster.RANKS.get(cluster.protocol(run.launcher))
    try:
        if names:
            return Place(*(int(environ[name]) for name in names))
        if "TF_CONFIG" in environ and run.launcher != "none":
            known = json.loads(environ["TF_CONFIG"])
            index = int(known["task"]["index"])
            # Processes that do not compute, as those that only keep weights, are not bound.
            return Place(index, index) if known["task"]["type"] == "worker" else None
    except (KeyError, ValueError, TypeError):
        return None
    copy = int(environ.get(COPY, 0))
    return Place(copy, copy)


def _bind(run: Run, place: Place, options: argparse.Namespace) -> dict[str, Any]:
    """Bind this process. Returns its host, cores and binding, as in run_start."""
    processes = engine.strategy_of(run).processes_per_node(run)
    each = run.devices_per_node // processes or 1
    mode = run.binding or options.site_binding
    here = {"host": hardware.host(), "cores": None, "binding": None}
    if options.device == "gpu":
        request = binding.Request(
            mode, place.local_rank, processes * run.copies_per_node, each, options.share_gpus
        )
        before = os.environ.get(gpus.CUDA)
        bound = binding.bind(request, options.log.parent)
        if os.environ.get(gpus.CUDA) == before:  # otherwise a MIG device was chosen
            _show_gpus(run, place, each, bound.first, options.visible_gpus)
        cores = None if bound.mode == binding.NONE else list(bound.cpus)
        return here | {"cores": cores, "binding": bound.describe()}
    if mode == binding.NONE:
        return here
    cores = _cores_of_cpu_devices(run, place, each)
    binding.set_affinity(cores)
    binding.set_threads(len(cores))
    return here | {"cores": cores}


def _cores_of_cpu_devices(run, place, each):
    """The cores that make up the CPU devices of a process."""
    cores, needed = sorted(os.sched_getaffinity(0)), each * run.threads_per_device
    first = 0 if run.copies_per_node > 1 else place.local_rank * needed  # a copy has only its own
    mine = cores[first : first + needed]
    if len(mine) < needed:
        raise Error(
            f"local rank {place.local_rank} needs {needed} cores; {len(cores)} are left to all "
            "processes of this node: fewer devices or threads_per_device, or a wider CPU mask"
        )
    return mine


def _show_gpus(run, place, each, first, which):
    """Set CUDA_VISIBLE_DEVICES to the GPUs of the run on this node, or of this process.

    `first`: number of the first GPU of this process among those it sees; None: not known.
    """
    listed = os.environ.get(gpus.CUDA)
    count = each if run.copies_per_node > 1 else run.devices_per_node
    seen = [str(n) for n in range(count)] if listed is None else listed.split(",")
    if which == OWN and len(seen) > each:
        begin = place.local_rank * each if first is None else first
        seen = seen[begin : begin + each]
    os.environ[gpus.CUDA] = ",".join(seen[:count])


def _rendezvous(run: Run, place: Place, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables by which processes of PyTorch find one another; {} if others set them."""
    if cluster.protocol(run.launcher) != "slurm" or "MASTER_PORT" in environ:
        return {}
    jobs = engine.strategy_of(run).jobs(run)
    known = cluster.from_slurm(jobs, run.nodes, environ)
    host, _, port = known.addresses["worker"][0].rpartition(":")
    return {
        "RANK": str(place.rank),
        "LOCAL_RANK": str(place.local_rank),
        "WORLD_SIZE": str(sum(jobs.values())),
        "LOCAL_WORLD_SIZE": str(sum(jobs.values()) // run.nodes),
        "MASTER_ADDR": environ.get("MASTER_ADDR", host),
        "MASTER_PORT": port,
    }
