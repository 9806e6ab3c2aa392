"""The cores and GPUs to which the processes of a run were bound, from their logs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dlbench.common import phrases

MAX_RANKS = 8  # that are described


def from_starts(starts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entry of each rank or copy in a record: its host, its cores and the log's binding.

    Args:
        starts: the event run_start of each. That of another program has all of its `bindings`.
    """
    if starts and starts[0].get("bindings"):
        return [entry for start in starts for entry in start.get("bindings") or ()]
    return [
        {"host": start.get("host"), "cpus": start.get("cores"), **start["binding"]}
        for start in starts
        if start.get("binding")
    ]


def describe(ranks: Sequence[dict[str, Any]]) -> str:
    """A text with the cores, NUMA nodes and GPUs of the first ranks; "" if none is known.

    Args:
        ranks: as from_starts returns them.
    """
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
    where = f" at NUMA node {_numbers(rank['numa_nodes'])}" if rank["numa_nodes"] else ""
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


def _numbers(numbers):
    return ", ".join(map(str, numbers))
