"""CPU time and memory of a program of others and of all processes that it starts, from outside.

For a Sampler (dlbench/trainer/sampling.py), in place of its own process. Processes that a service
starts, as srun's tasks, count if they carry the mark of the run. Linux only.
"""

import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dlbench.machine import node_use

PROC = Path("/proc")


class ProgramUse:
    """The use by a child of this process and by the processes that it starts.

    Args:
        pid: of the child.
        mark: of the run's processes, as in `leftovers.mark`.
    """

    def __init__(
        self, pid: int, mark: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tree = node_use.ProcessTree(PROC, pid, mark, disks=False)
        self._clock = clock
        self._last: tuple[float, float] | None = None
        self._cpu_s, self._peak_bytes = 0.0, 0
        self._waited_for_s = _waited_for_s()

    def begin(self) -> None:
        """CPU time counts from the start of the program, so there is nothing to do."""

    def sample(self) -> dict[str, Any]:
        """`cpu_percent` since the last sample, 100 = one core, and `memory_bytes`."""
        cpu_s, _, _ = self._tree.sample()
        self._cpu_s = max(self._cpu_s, cpu_s)
        memory_bytes = self._tree.resident_bytes()
        self._peak_bytes = max(self._peak_bytes, memory_bytes)
        last, self._last = self._last, (self._clock(), self._cpu_s)
        percent = None
        if last and self._last[0] > last[0]:
            percent = round(100 * (self._cpu_s - last[1]) / (self._last[0] - last[0]), 2)
        return {"cpu_percent": percent, "memory_bytes": memory_bytes or None}  # 0: it has ended

    def cpu_time_s(self) -> float:
        """Of all processes; once the program has ended, also of its last moments."""
        return round(max(self._cpu_s, _waited_for_s() - self._waited_for_s), 6)

    def peak_memory_bytes(self) -> int:
        """The most at one of the samples."""
        return self._peak_bytes

    def close(self) -> None:
        """Nothing is open."""


def _waited_for_s():
    """CPU seconds of ended children, and of those for which these waited."""
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime
