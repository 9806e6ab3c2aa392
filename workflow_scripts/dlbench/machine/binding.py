"""The binding of a process to GPUs and cores of its node, chosen before its framework starts.

- A task may see all GPUs of its job, or only its own as device 0. Processes that see the same GPUs
  take them in the order of their local ranks; a process that sees GPUs of its own takes the first
  of these. If two processes would take one GPU, that is an error unless they may share it.
- machine/core_division.py divides the cores: equal shares, near the GPUs.
- The numbers of threads of libraries (OMP_NUM_THREADS) and of workers of readers follow from the
  share.

CPU devices are cores themselves: dlbench/trainer/strategy.py divides them.
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
    """The binding that a process asks for.

    Attributes:
        mode: auto: to cores near the GPUs; cores: in the order of their numbers; none: not bound.
        index: of this process among the `processes` of the run on this node.
        gpus_each: number of GPUs of each process.
        shares_gpus: whether several processes may use one GPU.
    """

    mode: str
    index: int
    processes: int
    gpus_each: int
    shares_gpus: bool = False


@dataclass(frozen=True)
class Binding:
    """The GPUs and CPUs of a process.

    Attributes:
        mode: as in the Request.
        first: number of its first GPU among those it sees; None if it is unknown which it sees.
        gpus: its GPUs.
        cpus: the CPUs of its share.
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
    """Choose the GPUs and cores of this process, and bind it to these cores.

    Args:
        folder: of the run's log, through which the processes of a node exchange what they see.
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
    gathered = local_ranks.all_gather(folder, request.index, request.processes, facts)
    quota = limits.read(files)["cpu_time_cores"]
    binding = decide(
        request,
        [p["cpus"] for p in gathered],
        [None if p["gpus"] is None else _places(p["gpus"]) for p in gathered],
        core_division.read(files),
        quota if isinstance(quota, float | int) else None,
    )
    if any(gpu.uuid.startswith("MIG-") for gpu in binding.gpus):
        # CUDA shows a process only the first of the MIG devices that are named.
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
    """The Binding of a process, from what all processes on its node see.

    Args:
        masks: the CPUs that each process may use.
        visible: the GPUs that each process sees; None: not known.
        quota: CPUs whose time all together may use; None: no limit.
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
    """The number of the first GPU of each process of a node, among those that the process sees.

    Raises:
        Error: a process sees too few, or two would take the same one.
    """
    names = [tuple(gpu.uuid for gpu in gpus) for gpus in visible]
    first, owners = [], dict[str, int]()
    for rank, uuids in enumerate(names):
        before = names[:rank].count(uuids)  # processes that see the same GPUs
        number = before * each
        if may_share and len(uuids) >= each:
            number %= len(uuids) // each * each
        if number + each > len(uuids):
            raise Error(_too_few(rank, uuids, each, names.count(uuids)))
        first.append(number)
        for uuid in uuids[number : number + each]:
            if owners.setdefault(uuid, rank) != rank and not may_share:
                raise Error(
                    f"local ranks {owners[uuid]} and {rank} would both compute on {uuid}; each "
                    "device of a run is a GPU of its own: have each task see other GPUs "
                    "(--gpus-per-task=1, or a wrapper's CUDA_VISIBLE_DEVICES), or all of them; "
                    "site.share_gpus: true lets them share"
                )
    return first


def _too_few(rank, uuids, each, sharing):
    listed = ", ".join(uuids) or "none"
    needed = f"{each} GPU(s)" if sharing == 1 else f"{sharing * each} GPUs ({each} for each)"
    ranks = f"local rank {rank} needs"
    if sharing > 1:
        ranks = f"the {sharing} local ranks that see the same need"
    names = (gpu_places.CUDA, gpu_places.ROCR, gpu_places.HIP)
    variables = ", ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
    return (
        f"{ranks} {needed}; seen: {listed} "
        f"({variables or 'no variable hides any'}): does the job have as many GPUs as the run has "
        "devices on a node? One that is asked for twice is shared only with site.share_gpus: true"
    )


def _places(gpus):
    return tuple(GpuPlace(**{**gpu, "cpus": tuple(gpu["cpus"])}) for gpu in gpus)


def _place(mask, gpus):
    near = frozenset(cpu for gpu in gpus for cpu in gpu.cpus)
    nodes = tuple(sorted({gpu.numa_node for gpu in gpus if gpu.numa_node is not None}))
    return core_division.Place(frozenset(mask), near, nodes)


def _apply(binding: Binding) -> None:
    """Limit this process, and those that it starts, to its share."""
    if binding.mode != NONE:
        set_affinity(binding.cpus)
    os.environ[limits.THREADS] = str(binding.threads)
    set_threads(binding.threads)


def set_threads(count: int) -> None:
    """Set OMP_NUM_THREADS, unless the user has set it."""
    # torchrun sets 1 if the user sets nothing.
    set_by_torchrun = "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get(THREADS) == "1"
    if THREADS not in os.environ or set_by_torchrun:
        os.environ[THREADS] = str(count)


def set_affinity(cores: Iterable[int]) -> None:
    """Bind this process to cores: all its threads, and those that they will start.

    The system call binds one thread. Threads that a library has already started, as Horovod does,
    would otherwise go on to compute on the cores of other processes.
    """
    cores = set(cores)
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # the thread has ended meanwhile
            os.sched_setaffinity(int(thread), cores)
