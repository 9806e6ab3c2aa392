"""Which GPUs and which cores of its node a process has: chosen before its framework starts.

- A task may see all GPUs of its job, or its own alone as device 0: both are as good. Processes that
  see the same GPUs take them in the order of their local ranks, each that sees others takes its own
  first ones. Two that took one GPU are refused, unless they are to share it.
- Cores are divided by machine/core_division.py: near the GPUs, equal shares.
- Threads of libraries (OMP_NUM_THREADS) and workers of readers follow the share.

CPU devices are cores by themselves: dlbench/trainer/strategy.py divides them.
"""

import contextlib
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.machine import core_division, gpu_places, limits, local_ranks
from dlbench.machine.gpu_places import GpuPlace
from dlbench.machine.hardware import Files

AUTO, NONE, CORES = MODES = ("auto", "none", "cores")
THREADS = "OMP_NUM_THREADS"
# Variables that train.py sets by its flags; processes that it starts inherit them.
MODE, SHARES_GPUS = "DLBENCH_BINDING", "DLBENCH_SHARES_GPUS"


@dataclass(frozen=True)
class Request:
    """What is to be bound.

    Attributes:
        mode: auto: cores near the GPUs; cores: by their numbers alone; none: nothing is bound.
        index: of this process among the `processes` of the run on this node.
        gpus_each: how many GPUs each of them takes.
        shares_gpus: whether several may take one GPU.
    """

    mode: str
    index: int
    processes: int
    gpus_each: int
    shares_gpus: bool = False


@dataclass(frozen=True)
class Binding:
    """What a process has of its node.

    Attributes:
        mode: as asked for.
        first: number of its first GPU among those it sees; None: not known which it sees.
        gpus: its GPUs.
        cpus: those of its share.
        threads: how many threads or workers are worth starting.
        left_over: CPUs that no process of the run on this node has.
    """

    mode: str
    first: int | None
    gpus: tuple[GpuPlace, ...]
    cpus: tuple[int, ...]
    threads: int
    left_over: tuple[int, ...]
    numa_nodes: tuple[int, ...]

    def describe(self) -> dict[str, Any]:
        """Plain values for the log."""
        near = {cpu for gpu in self.gpus for cpu in gpu.cpus}
        return {
            "mode": self.mode,
            "threads": self.threads,
            "numa_nodes": list(self.numa_nodes),
            "gpus": [
                {"uuid": gpu.uuid, "pci": gpu.pci, "numa_node": gpu.numa_node} for gpu in self.gpus
            ],
            # None: not known what is near.
            "far_cpus": len(set(self.cpus) - near) if near else None,
            "left_over_cpus": len(self.left_over),
        }


def mode() -> str:
    """How processes are bound: one of MODES."""
    return os.environ.get(MODE, AUTO)


def shares_gpus() -> bool:
    """Whether several processes of a run may take one GPU."""
    return SHARES_GPUS in os.environ


def bind(request: Request, folder: Path, root: str | Path = "/") -> Binding:
    """Choose the GPUs and cores of this process, and keep it to these cores.

    Args:
        folder: of the run's log, by which the processes of a node find one another.
        root: of the file system whose /proc and /sys are read.

    Raises:
        Error: GPUs are missing, or two processes would share one; there are fewer cores than
            processes.
    """
    files = Files(root)
    visible = gpu_places.visible(files)
    facts = {
        "cpus": sorted(os.sched_getaffinity(0)),
        "gpus": None if visible is None else [asdict(gpu) for gpu in visible],
    }
    everyone = local_ranks.exchange(folder, request.index, request.processes, facts)
    quota = limits.read(files)["cpu_time_cores"]
    binding = decide(
        request,
        [one["cpus"] for one in everyone],
        [None if one["gpus"] is None else _places(one["gpus"]) for one in everyone],
        core_division.read(files),
        quota if isinstance(quota, float | int) else None,
    )
    if any(gpu.uuid.startswith("MIG-") for gpu in binding.gpus):
        # CUDA shows a process the first of all MIG devices that are named, and no other.
        os.environ[gpu_places.CUDA] = ",".join(gpu.uuid for gpu in binding.gpus)
        binding = replace(binding, first=0)
    _apply(binding)
    return binding


def decide(
    request: Request,
    masks: Sequence[Sequence[int]],
    visible: Sequence[tuple[GpuPlace, ...] | None],
    topology: core_division.Topology,
    quota: float | None = None,
) -> Binding:
    """The Binding of a process, from what all of its node say.

    Args:
        masks: the CPUs that each may use.
        visible: the GPUs that each sees; None: not known.
        quota: CPUs whose time all may use; None: no limit.
    """
    known = [gpus for gpus in visible if gpus is not None]
    first: list[int] | None = None
    taken: list[tuple[GpuPlace, ...]] = [()] * len(masks)
    if len(known) == len(visible):
        first = first_gpus(known, request.gpus_each, request.shares_gpus)
        taken = [
            gpus[number : number + request.gpus_each]
            for gpus, number in zip(known, first, strict=True)
        ]
    places = [
        _place(mask, gpus if request.mode == AUTO else ())
        for mask, gpus in zip(masks, taken, strict=True)
    ]
    if request.mode == NONE:
        division = core_division.Division(tuple(map(tuple, masks)), ())
        threads = len(set().union(*masks)) // len(masks)
    else:
        division = core_division.divide(topology, places, quota)
        threads = len(division.shares[request.index])
    cpus = division.shares[request.index]
    if quota is not None:
        threads = min(threads, math.floor(quota / len(masks)))
    return Binding(
        request.mode,
        None if first is None else first[request.index],
        taken[request.index],
        cpus,
        max(1, threads),
        division.left_over,
        tuple(topology.numa_nodes(cpus)),
    )


def first_gpus(
    visible: Sequence[tuple[GpuPlace, ...]], each: int, may_share: bool = False
) -> list[int]:
    """The number of the first GPU that each process of a node takes, among those that it sees.

    Raises:
        Error: one sees too few, or two take the same one.
    """
    names = [tuple(gpu.uuid for gpu in gpus) for gpus in visible]
    first, owners = [], dict[str, int]()
    for rank, mine in enumerate(names):
        before = names[:rank].count(mine)  # of those that see the same
        number = before * each
        if may_share and len(mine) >= each:
            number %= len(mine) // each * each
        if number + each > len(mine):
            raise Error(_too_few(rank, mine, each, names.count(mine)))
        first.append(number)
        for uuid in mine[number : number + each]:
            if owners.setdefault(uuid, rank) != rank and not may_share:
                raise Error(
                    f"local ranks {owners[uuid]} and {rank} would both compute on {uuid}; each "
                    "device of a run is a GPU of its own: have each task see other GPUs "
                    "(--gpus-per-task=1, or a wrapper's CUDA_VISIBLE_DEVICES), or all of them; "
                    "site.share_gpus: true lets them share"
                )
    return first


def _too_few(rank, mine, each, sharing):
    listed = ", ".join(mine) or "none"
    wanted = f"{each} GPU(s)" if sharing == 1 else f"{sharing * each} GPUs ({each} for each)"
    who = f"local rank {rank}" if sharing == 1 else f"the {sharing} local ranks that see the same"
    names = (gpu_places.CUDA, gpu_places.ROCR, gpu_places.HIP)
    said = ", ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
    return (
        f"{who} need {wanted} and see {len(mine)}: {listed} ({said or 'no variable hides any'}): "
        "does the job have as many GPUs as the run has devices on a node? One that is asked for "
        "twice is shared only with site.share_gpus: true"
    )


def _places(gpus):
    return tuple(GpuPlace(**{**gpu, "cpus": tuple(gpu["cpus"])}) for gpu in gpus)


def _place(mask, gpus):
    near = frozenset(cpu for gpu in gpus for cpu in gpu.cpus)
    nodes = tuple(sorted({gpu.numa_node for gpu in gpus if gpu.numa_node is not None}))
    return core_division.Place(frozenset(mask), near, nodes)


def _apply(binding: Binding) -> None:
    """Have this process, and what it starts, use no more than its share."""
    if binding.mode != NONE:
        set_affinity(binding.cpus)
    os.environ[limits.THREADS] = str(binding.threads)
    # torchrun says 1 where the user says nothing.
    of_torchrun = "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get(THREADS) == "1"
    if THREADS not in os.environ or of_torchrun:
        os.environ[THREADS] = str(binding.threads)


def set_affinity(cores: Iterable[int]) -> None:
    """Keep this process to the cores with these numbers: all its threads, and those they start.

    The system call binds one thread. Those that a library started before it, as Horovod does,
    would go on to compute on the cores of other processes.
    """
    cores = set(cores)
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), cores)
