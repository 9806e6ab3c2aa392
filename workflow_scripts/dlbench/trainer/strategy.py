"""The base of all strategies: the processes of a run, and the cores and GPUs of each.

The base class of a framework adds how its devices are set up and how a step is distributed over
them. The workflow reads the attributes of the classes; only the trainer makes instances.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlbench import Error
from dlbench.common import assignments, options
from dlbench.machine import binding, gpus

if TYPE_CHECKING:
    import numpy as np

Spec = Any  # the fields of a run as attributes: a Run, or the flags of train.py


class BaseStrategy:
    """One process on one device; subclasses change that."""

    packages: tuple[str, ...] = ()  # what the trainer's environment needs beside the framework
    launcher = "none"  # of runs that name none
    # Of launchers, by which its processes can find one another.
    protocols: tuple[str, ...] = ("tf_config", "slurm")
    OPTIONS: dict[str, Any] = {}  # of `strategy_options`: see dlbench/common/options.py
    evaluates_together = False  # whether an evaluation needs all ranks
    supports_windows = True  # whether several steps can be launched before the host waits
    clips_mean = True  # whether gradients are clipped after they are averaged over the devices
    first_computes = True  # whether rank 0 computes; otherwise it only schedules the steps
    reduces = False  # whether a collective, which baselines measure by itself, reduces gradients

    rank, size = 0, 1  # of this process among all processes
    local_rank = 0  # of this process among those of its node
    devices_per_process = 1
    ranks_per_batch = 1  # of a group that trains the same items together, all those of its devices

    @staticmethod
    def unsupported(run: Spec) -> str | None:
        """Why this strategy cannot train a run; None if it can."""
        return None

    @classmethod
    def not_combined(cls, run: Spec) -> str | None:
        """Why the framework cannot combine the run's fields; None if it can."""
        return None

    @staticmethod
    def processes_per_node(run: Spec) -> int:
        """Number of a run's processes on each node that compute."""
        return 1

    @classmethod
    def jobs(cls, run: Spec) -> dict[str, int]:
        """Number of a run's processes of each kind, in the order of their ranks."""
        return {"worker": run.nodes * cls.processes_per_node(run)}

    @classmethod
    def parse_options(cls, run: Spec) -> dict[str, Any]:
        """The options of a run with their values."""
        return options.parse("strategy", run.strategy, cls.OPTIONS, run.strategy_options)

    def __init__(self, spec: Spec, device: str, folder: str | Path = "."):
        """Join the other processes and set up the devices of this one, "cpu" or "gpu".

        Further files may be written into `folder`, where the run's log lies. Raises Error: there
        are other processes than the run has, or a device is missing.
        """
        self.options = self.parse_options(spec)
        self.folder = Path(folder)
        self.on_gpus = device == "gpu"
        self.join(spec)
        if self.size == 1:
            _check_single_process(spec)
        self.cores: list[int] | None = None  # to which it is bound
        self.binding: binding.Binding | None = None  # of a process whose devices are GPUs
        if device == "gpu":
            self.binding = self._bind(spec)
        elif binding.mode() != binding.NONE:
            self.cores = self._pin(spec.threads_per_device)
        self.devices: list[str] = self._configure(device, spec.threads_per_device)

    def join(self, spec: Spec) -> None:
        """Set rank, size, local_rank and devices_per_process."""

    def serve(self, finished: Callable[[], bool]) -> bool:
        """Serve others until `finished()`, if that is this process's only task: then True."""
        return False

    def leave(self) -> None:
        """Leave the process group after all processes have finished, or stopped together."""

    def settings(self) -> dict[str, Any]:
        """The settings that decide this strategy's speed, for the log."""
        return dict(self.options)

    def gather(self, values: Any) -> "np.ndarray":
        """All-gather numbers: from (n,) on each process to (size, n) on each, float64.

        It is a barrier, too: no process returns before all have called.
        """
        import numpy as np  # late: images are made by Pythons that may lack it

        return np.asarray([values], np.float64)

    def gpus(self) -> tuple[int | str, ...]:
        """NVML selectors of the GPUs of this process, for sampling."""
        if not self.on_gpus:
            return ()
        return gpus.visible_gpus(self._first_gpu(), self.devices_per_process)

    def select_gpus(self, visible: Sequence[Any]) -> list[Any]:
        """Select the GPUs of this process among those that its framework sees."""
        if self.binding and self.binding.first is None and len(visible) == self.devices_per_process:
            return list(visible)  # as far as is known, it sees only its own
        first = self._first_gpu()
        selected = list(visible[first : first + self.devices_per_process])
        if len(selected) < self.devices_per_process:
            raise Error(
                f"rank {self.rank} needs {self.devices_per_process} GPU(s) from number {first} on; "
                f"its framework sees {len(visible)} in all "
                f"(CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')}): is it "
                "a build for GPUs, and does the machine have a driver that fits?"
            )
        return selected

    def _first_gpu(self):
        """The number of this process's first GPU among those that it sees."""
        if self.binding and self.binding.first is not None:
            return self.binding.first
        if gpus.count_visible_gpus(os.environ) == self.devices_per_process:
            return 0  # it sees only its own
        return self.local_rank * self.devices_per_process

    def _bind(self, spec: Spec) -> binding.Binding | None:
        """Choose the GPUs of this process and bind it to cores near them."""
        copies = spec.copies_per_node
        bound = binding.bind(
            binding.Request(
                binding.mode(),
                int(os.environ.get("DLBENCH_COPY", 0)) if copies > 1 else self.local_rank,
                self.processes_per_node(spec) * copies,
                self.devices_per_process,
                binding.shares_gpus(),
            ),
            self.folder,
        )
        os.environ.update(assignments.parse(spec.variables))  # the binding sets numbers of threads
        self.cores = None if bound.mode == binding.NONE else list(bound.cpus)
        return bound

    def _pin(self, threads_per_device: int) -> list[int]:
        """Bind this process to the cores that make up its CPU devices.

        So a device is the same under every strategy, and a run on one device has no second core for
        its input pipeline.
        """
        cores = sorted(os.sched_getaffinity(0))
        needed = threads_per_device * self.devices_per_process
        bound = cores[self.local_rank * needed : (self.local_rank + 1) * needed]
        if len(bound) < needed:
            raise Error(
                f"rank {self.rank} needs {needed} cores; {len(cores)} are left to all processes "
                "of this node: fewer devices or threads_per_device, or a wider CPU mask"
            )
        binding.set_affinity(bound)
        return bound

    def _configure(self, device: str, threads_per_device: int) -> list[str]:
        """Make the framework see exactly the devices of this process, and return their names."""
        raise NotImplementedError


def _check_single_process(spec):
    """Check that torchrun, whose variables this strategy does not read, started one process."""
    started = int(os.environ.get("WORLD_SIZE", 1)) if "TORCHELASTIC_RUN_ID" in os.environ else 1
    if started > 1:
        raise Error(
            f"torchrun started {started} processes, and strategy {spec.strategy} has one: start "
            "the trainer without it, or choose strategy ddp or fsdp of framework pytorch"
        )


def digest(arrays: "Iterable[np.ndarray]") -> str:
    """SHA-256 of the bytes of arrays, one after another."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(array.tobytes())
    return total.hexdigest()
