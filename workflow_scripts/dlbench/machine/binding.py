"""The binding of a process to GPUs and cores of its node, chosen before its framework starts.

- A task may see all GPUs of its job, or only its own as device 0. Processes that see the same GPUs
  take them in the order of their local ranks; a process that sees GPUs of its own takes the first
  of these. If two processes would take one GPU, that is an error unless they may share it.
- All processes get equally many cores, since a step is as fast as the slowest process, and whole
  ones: the hardware threads of a core stay together. The remainder is left over.
- Processes that are near the same cores get consecutive blocks of these, so that each has caches of
  its own. A process that still lacks cores gets the nearest of the remaining ones. If distances are
  unknown, blocks are consecutive in the order of the numbers.
- No process gets a CPU outside of its own mask. A quota of CPU time does not make a share smaller:
  other groups with quotas would be bound to the same cores. It limits the number of threads.
- The numbers of threads of libraries (OMP_NUM_THREADS) and of workers of readers follow from the
  share.

The processes of a node may have different CPU masks and see different GPUs, and a framework lets
them communicate only after it has taken its devices. So each process writes a file beside the log,
which the others read (`all_gather`): that works under all launchers and across containers. Each
start has a random number, and a file lists the numbers that its writer has seen of the others. A
process proceeds once all others list its number, so a file of an earlier start is never taken for a
new one. The files are removed once all have read them.

CPU devices are cores themselves: dlbench/trainer/strategy.py divides them.
"""

import atexit
import contextlib
import json
import math
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import phrases
from dlbench.machine import gpus, hardware, limits
from dlbench.machine.gpus import GpuPlace
from dlbench.machine.hardware import CPU, NODES, Files, expand


@dataclass(frozen=True)
class Topology:
    """The CPUs of a node.

    Attributes:
        cores: numbers of the hardware threads of each physical core.
        numa_cpus: numbers of the CPUs of each NUMA node that has some.
        distances: between NUMA nodes, as the firmware states them; 10 is that of a node to itself.
    """

    cores: tuple[tuple[int, ...], ...]
    numa_cpus: dict[int, frozenset[int]] = field(default_factory=dict)
    distances: dict[int, dict[int, int]] = field(default_factory=dict)

    def numa_nodes(self, cpus: Sequence[int]) -> list[int]:
        """The NUMA nodes that have some of these CPUs."""
        return sorted(node for node, those in self.numa_cpus.items() if those & set(cpus))


@dataclass(frozen=True)
class Place:
    """One process: the CPUs that it may use; those near one of its GPUs, empty if unknown; and the
    NUMA nodes to which its GPUs are attached.
    """

    cpus: frozenset[int]
    near: frozenset[int] = frozenset()
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Division:
    """The CPUs of each process, in their order, and those that no process has."""

    shares: tuple[tuple[int, ...], ...]
    left_over: tuple[int, ...]


def read_topology(files: Files) -> Topology:
    """The topology that the kernel states; each CPU is a core where it states none."""
    online = files.read("cores", f"{CPU}/online", expand) or []
    cores = files.fact(
        "cores",
        lambda: {
            tuple(expand(files.text(f"{CPU}/cpu{number}/topology/thread_siblings_list")))
            for number in online
        },
    )
    numa_cpus, distances = {}, {}
    for place in files.paths(f"{NODES}/node[0-9]*"):
        node = int(place.rpartition("node")[2])
        cpus = files.read("numa", f"{place}/cpulist", expand)
        row = files.read("numa", f"{place}/distance", lambda text: list(map(int, text.split())))
        if cpus:
            numa_cpus[node], distances[node] = frozenset(cpus), row or []
    # A row of distances has an entry for each node, those without CPUs included.
    numbers = [int(place.rpartition("node")[2]) for place in files.paths(f"{NODES}/node[0-9]*")]
    return Topology(
        tuple(sorted(cores or {(number,) for number in online})),
        numa_cpus,
        {node: dict(zip(numbers, row, strict=False)) for node, row in distances.items()},
    )


def divide(topology: Topology, places: Sequence[Place], quota: float | None = None) -> Division:
    """A share of the node's cores for each process, in their order.

    `quota`: CPUs whose time a control group may use; None: no limit.

    Raises Error: there are fewer CPUs than processes.
    """
    usable = frozenset().union(*(place.cpus for place in places))
    _check_enough(len(usable), len(places), quota)
    cores = [tuple(cpu for cpu in core if cpu in usable) for core in topology.cores]
    cores = [core for core in cores if core]
    known = {cpu for core in cores for cpu in core}
    cores += [(cpu,) for cpu in sorted(usable - known)]
    if len(cores) < len(places):  # some processes have to share a core, by its hardware threads
        cores = [(cpu,) for cpu in sorted(usable)]
    each = len(cores) // len(places)
    assigned: list[list[tuple[int, ...]]] = [[] for _ in places]
    left = sorted(cores)
    _assign_near_cores(places, assigned, left, each)
    _assign_remaining_cores(topology, places, assigned, left, each)
    shares = tuple(tuple(sorted(cpu for core in share for cpu in core)) for share in assigned)
    return Division(shares, tuple(sorted(cpu for core in left for cpu in core)))


def _check_enough(cpus: int, processes: int, quota: float | None) -> None:
    if cpus < processes:
        offered = f"{cpus} CPU(s)"
    elif quota is not None and quota < processes:
        offered = f"the time of {quota:g} CPUs, by the quota of a control group,"
    else:
        return
    raise Error(
        f"{processes} processes of this run are on this node and may use {offered} in all, fewer "
        "than one for each: ask the scheduler for more cores (a CPU mask or a control group may "
        "hide the others), start fewer processes, or have them share by site.binding: none"
    )


def _assign_near_cores(places, assigned, left, each):
    """Assign equal blocks of near cores to the processes that are near the same ones."""
    for near in dict.fromkeys(place.near for place in places if place.near):
        group = [number for number, place in enumerate(places) if place.near == near]
        common = near.intersection(*(places[number].cpus for number in group))
        available = [core for core in left if common.issuperset(core)]
        block = min(each, len(available) // len(group))
        for index, number in enumerate(group):
            assigned[number] = available[index * block : (index + 1) * block]
        for core in available[: block * len(group)]:
            left.remove(core)


def _assign_remaining_cores(topology, places, assigned, left, each):
    """Assign the nearest remaining cores to each process that has fewer than the others."""
    node_of = {cpu: node for node, cpus in topology.numa_cpus.items() for cpu in cpus}

    def distance(place, core):
        if not place.near or place.near.issuperset(core):
            return 0
        rows = (topology.distances.get(node, {}) for node in place.numa_nodes)
        return min((row.get(node_of.get(core[0]), math.inf) for row in rows), default=math.inf)

    for place, share in zip(places, assigned, strict=True):
        allowed = [core for core in left if place.cpus.issuperset(core)]
        allowed.sort(key=lambda core, place=place: (distance(place, core), core))
        for core in allowed[: each - len(share)]:
            share.append(core)
            left.remove(core)


POLL_S = 0.005
PATIENCE_S = 600.0  # until the last one has written: containers start slowly on a full node
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def all_gather(folder: Path, index: int, count: int, facts: Any) -> list[Any]:
    """All-gather plain values over the processes of this run on this node, in their order.

    `folder`: of the run's log, which they share; `index`: of this process, which gives `facts`,
    among the `count` on this node.

    Raises Error: a process did not write its values in time.
    """
    if count == 1:
        return [facts]
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f".local-rank-{number}-{_node()}.json" for number in range(count)]
    number, seen, written = uuid.uuid4().hex, dict[str, str](), None
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if written != seen:
            _write_facts(paths[index], {"number": number, "seen": seen, "facts": facts})
            written = dict(seen)
        others = {n: _read_facts(path) for n, path in enumerate(paths) if n != index}
        seen = {str(n): other["number"] for n, other in others.items() if other}
        absent = [
            n for n, other in others.items() if not other or other["seen"].get(str(index)) != number
        ]
        if not absent and written == seen:
            _write_facts(
                paths[index], {"number": number, "seen": seen, "facts": facts, "done": True}
            )
            atexit.register(_remove_facts, paths)
            return [facts if n == index else others[n]["facts"] for n in range(count)]
        if time.monotonic() > deadline:
            raise Error(
                f"local rank {index} waited {PATIENCE_S:g} s for local rank "
                f"{' and '.join(map(str, absent))} of {count} on {hardware.host()}, in vain: are "
                "the ranks of a node numbered as the run's devices_per_node says, and do all see "
                f"the folder {folder}?"
            )
        time.sleep(POLL_S)


def _remove_facts(paths: list[Path]) -> None:
    """Remove all files, unless a process still waits for one."""
    if all(content and content.get("done") for content in map(_read_facts, paths)):
        for path in paths:
            path.unlink(missing_ok=True)


def _node() -> str:
    """An id of this node, equal in all its containers: ranks of several nodes share a folder."""
    boot = BOOT_ID.read_text().strip()[:8] if BOOT_ID.exists() else "unknown"
    return f"{hardware.short_host(hardware.host())}-{boot}"


def _write_facts(path, content):
    unready = path.with_suffix(".new")
    unready.write_text(json.dumps(content), encoding="utf-8")
    os.replace(unready, path)


def _read_facts(path):
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None


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

    `folder`: of the run's log, through which the processes of a node exchange what they see;
    `root`: of the file system whose /proc and /sys are read.

    Raises Error: GPUs are missing, or two processes would share one; there are fewer cores than
    processes.
    """
    files = Files(root)
    visible = gpus.visible_places(files)
    facts = {
        "cpus": sorted(os.sched_getaffinity(0)),
        "gpus": None if visible is None else [asdict(gpu) for gpu in visible],
    }
    gathered = all_gather(folder, request.index, request.processes, facts)
    quota = limits.read(files)["cpu_time_cores"]
    binding = decide(
        request,
        [p["cpus"] for p in gathered],
        [None if p["gpus"] is None else _places(p["gpus"]) for p in gathered],
        read_topology(files),
        quota if isinstance(quota, float | int) else None,
    )
    if any(gpu.uuid.startswith("MIG-") for gpu in binding.gpus):
        # CUDA shows a process only the first of the MIG devices that are named.
        os.environ[gpus.CUDA] = ",".join(gpu.uuid for gpu in binding.gpus)
        binding = replace(binding, first=0)
    _apply(binding)
    return binding


def decide(
    request: Request,
    masks: Sequence[Sequence[int]],
    visible: Sequence[tuple[GpuPlace, ...] | None],
    topology: Topology,
    quota: float | None = None,
) -> Binding:
    """The Binding of a process, from what all processes on its node see.

    `masks`: the CPUs that each may use; `visible`: the GPUs that each sees, None: not known;
    `quota`: CPUs whose time all together may use, None: no limit.
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
        division = Division(tuple(map(tuple, masks)), ())
        threads = len(set().union(*masks)) // len(masks)
    else:
        division = divide(topology, places, quota)
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

    Raises Error: a process sees too few, or two would take the same one.
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
        for name in uuids[number : number + each]:
            if owners.setdefault(name, rank) != rank and not may_share:
                raise Error(
                    f"local ranks {owners[name]} and {rank} would both compute on {name}; each "
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
    names = (gpus.CUDA, gpus.ROCR, gpus.HIP)
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
    return Place(frozenset(mask), near, nodes)


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


MAX_RANKS = 8  # that are described


def from_starts(starts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entry of each rank or copy in a record: its host, its cores and the log's binding.

    `starts`: the event run_start of each. That of another program has all of its `bindings`.
    """
    if starts and starts[0].get("bindings"):
        return [entry for start in starts for entry in start.get("bindings") or ()]
    return [
        {"host": start.get("host"), "cpus": start.get("cores"), **start["binding"]}
        for start in starts
        if start.get("binding")
    ]


def describe_ranks(ranks: Sequence[dict[str, Any]]) -> str:
    """A text with the cores, NUMA nodes and GPUs of the first ranks; "" if none is known."""
    parts = [
        f"rank {number}: {_cores(rank)}, {_gpus(rank)}"
        for number, rank in enumerate(ranks[:MAX_RANKS])
    ]
    if not parts:
        return ""
    more = f"; {len(ranks) - MAX_RANKS} more" if len(ranks) > MAX_RANKS else ""
    left = max(rank["left_over_cpus"] for rank in ranks)
    unused = f"; {phrases.counted(left, 'CPU')} of a node left over" if left else ""
    return "; ".join(parts) + more + unused


def caveat(ranks: Sequence[dict[str, Any]]) -> str:
    """A sentence about the ranks whose cores are far from their GPUs; "" if there are none.

    A rank alone on its node may have all cores of it: it counts only if it has no near core.
    """
    on_host = Counter(rank["host"] for rank in ranks)
    far = [
        number
        for number, rank in enumerate(ranks)
        if rank["cpus"]
        and rank["far_cpus"] is not None
        and (
            rank["far_cpus"] == len(rank["cpus"])
            or (on_host[rank["host"]] > 1 and 2 * rank["far_cpus"] > len(rank["cpus"]))
        )
    ]
    if not far:
        return ""
    first = ranks[far[0]]
    return (
        f"{len(far)} of {phrases.counted(len(ranks), 'rank')} had cores far from their GPUs (rank "
        f"{far[0]}: {_cores(first)}, {_gpus(first)}), which slows down copies and launches"
    )


def _cores(rank):
    nodes = ", ".join(map(str, rank["numa_nodes"]))
    where = f" at NUMA node {nodes}" if nodes else ""
    if rank["cpus"] is None:
        return f"not bound, {rank['threads']} threads{where}"
    return f"CPUs {phrases.ranges(rank['cpus'])}{where}"


def _gpus(rank):
    gpus = [
        gpu["pci"] + (f" at NUMA node {gpu['numa_node']}" if gpu["numa_node"] is not None else "")
        for gpu in rank["gpus"]
        if gpu["pci"]
    ]
    return f"GPU {', '.join(gpus)}" if gpus else "GPU not known"
