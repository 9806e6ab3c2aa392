"""The cores of a node divided among the processes of a run on it: equal shares, near cores first.

- A share consists of whole physical cores: the hardware threads of a core stay together.
- All shares have the same size, since a step is as fast as the slowest process. The remainder is
  left over.
- Processes that are near the same cores get consecutive blocks of these, so that each has caches of
  its own. A process that still lacks cores gets the nearest of the remaining ones.
- If distances are unknown, blocks are consecutive in the order of the numbers.
- No process gets a CPU outside of its own mask. A quota of CPU time does not make a share smaller:
  other groups with quotas would be bound to the same cores. It limits the number of threads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from dlbench import Error
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
    """One process: the CPUs that it may use, and those that are near its GPUs.

    Attributes:
        near: CPUs near one of its GPUs; empty if unknown.
        numa_nodes: those to which its GPUs are attached.
    """

    cpus: frozenset[int]
    near: frozenset[int] = frozenset()
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Division:
    """The CPUs of each process, in their order, and those that no process has."""

    shares: tuple[tuple[int, ...], ...]
    left_over: tuple[int, ...]


def read(files: Files) -> Topology:
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
    """A share of the node's cores for each process.

    Args:
        places: of the processes of a run on this node, in their order.
        quota: CPUs whose time a control group may use; None: no limit.

    Raises:
        Error: there are fewer CPUs than processes.
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
