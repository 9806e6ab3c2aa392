"""Strategies of PyTorch, one file each: how the work of a step is distributed over devices.

A strategy file defines a class `Strategy` on `Base` below. The workflow, whose environment lacks
PyTorch, reads the attributes of the class; only the trainer makes instances. So PyTorch is imported
inside the methods.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from dlbench.common import assignments, plugins
from dlbench.machine import limits
from dlbench.machine.binding import THREADS
from dlbench.trainer.strategy import BaseStrategy, Spec, digest

# Parameters of mallopt(3) by their numbers in glibc's malloc.h, with their largest values.
MALLOPT = {"M_MMAP_THRESHOLD": (-3, 32 << 20), "M_TRIM_THRESHOLD": (-1, (1 << 31) - 1)}
RECORDING_STEPS = 2  # in which CUDA graphs are not replayed yet: the first warms up for recording
Tensor = Any  # PyTorch's own, as are modules: it is not imported yet
Module = Any
Batch = tuple[np.ndarray, ...]  # in the memory of the host: inputs and targets


class Base(BaseStrategy):
    """One process on one device, a torch.device; the other strategies change that."""

    replicates_weights = True  # on each device; if not, they are sharded
    # Whether torch.autocast chooses the operations in bfloat16 or float16; if not, the model that
    # `parallelize` returns computes in the precision of the run.
    uses_autocast = True
    # Whether all that a step does between the start of the forward and the end of the backward pass
    # is in the compiled program.
    supports_cuda_graphs = True
    tokens: int | None = None  # of an item in the model's attention, if it has that

    def __init__(self, spec: Spec, device: str, folder: str | Path = "."):
        # Read when PyTorch is imported. With its caches, compile times would be too short.
        os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
        if spec.deterministic:  # read when cuBLAS is first used
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self.compiled: dict[str, Any] = {}  # how, if not by default: see step.py
        threads = assignments.parse(spec.variables).get(THREADS, "")
        self.asked_threads = int(threads) if threads.isdigit() else 0
        super().__init__(spec, device, folder)

    @classmethod
    def not_combined(cls, run: Spec) -> str | None:
        if run.compile_mode == "model":
            return None
        if not run.compile:
            return (
                f"compile_mode {run.compile_mode} says how compile: true compiles, and this run "
                "does not compile: say compile: true, or leave compile_mode out"
            )
        return _without_blocks(run) if run.compile_mode == "blocks" else cls._not_captured(run)

    @classmethod
    def _not_captured(cls, run):
        """Why CUDA graphs cannot be recorded of a run's steps; None if they can.

        PyTorch's documentation says what they cannot do, "CUDAGraph Trees": kernels are replayed
        with the arguments and addresses of the recording. DDP and FSDP exchange gradients in hooks,
        outside of the compiled program, and FSDP gathers weights at other addresses in each step.
        """
        if not cls.supports_cuda_graphs:
            return (
                f"compile_mode cuda_graphs does not work with strategy {run.strategy}, whose "
                "exchange between devices is outside of the compiled program: choose strategy "
                "single"
            )
        if run.accumulate_steps > 1:
            return (
                "compile_mode cuda_graphs does not work with accumulate_steps: the graph of a part "
                "would overwrite the gradients of the part before it"
            )
        if run.deterministic:
            return (
                "compile_mode cuda_graphs does not work with deterministic: PyTorch leaves some "
                "deterministic operations, as that of an embedding's gradient, out of CUDA graphs"
            )
        if run.steps is not None and run.warmup_steps < RECORDING_STEPS:
            return (
                f"compile_mode cuda_graphs needs warmup_steps {RECORDING_STEPS} or more: the "
                f"graphs are recorded in the first {RECORDING_STEPS} steps"
            )
        return None

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), **self.compiled}

    def local_shard(self, tensor: Tensor) -> Tensor:
        """This process's shard of a weight, of its gradient, or of its optimizer's state."""
        return tensor

    def parallelize(self, model: Module) -> Module:
        """Wrap the model for a training step.

        Rank 0 broadcasts its weights. A backward pass through the wrapped model averages the
        gradients over all devices.
        """
        return model

    def gradient_sync(self, model: Module, enabled: bool) -> AbstractContextManager[Any]:
        """The context of a forward and backward pass of a model that `parallelize` returned.

        `enabled`: whether the backward pass exchanges the gradients.
        """
        return contextlib.nullcontext()

    def to_devices(self, values: np.ndarray) -> Tensor:
        """A tensor on the device of this process: images with channels first, labels as int64.

        Images keep their layout in memory, which is PyTorch's channels_last.
        """
        from dlbench.trainer.pytorch import building, loading

        return building.channels_first(loading.tensor_of(values).to(self.device))

    def prefetch_to_devices(self, batches: Iterator[Batch]) -> Iterator[tuple[Tensor, ...]]:
        """Batches on the device of this process; on GPUs the copies overlap with the steps."""
        if not self.on_gpus:
            return (tuple(map(self.to_devices, batch)) for batch in batches)
        from dlbench.trainer.pytorch import loading

        return loading.ahead(batches, self.device)

    def weights_sha256(self, weights: Sequence[Tensor]) -> list[str]:
        """One digest of all weights for each device of this process."""
        return [digest(weight.detach().cpu().numpy() for weight in weights)]

    def _configure(self, device, threads_per_device):
        """Make PyTorch use only the device of this process, and return its name."""
        import torch

        if device == "gpu":
            self.gpu_count = torch.cuda.device_count()
            (number,) = self.select_gpus(range(self.gpu_count))
            self.device = torch.device("cuda", number)
            torch.cuda.set_device(self.device)
            torch.set_num_threads(self.asked_threads or limits.usable_threads())
        else:
            self.gpu_count = 0
            self.device = torch.device("cpu")
            _keep_freed_memory()
            torch.set_num_threads(self.asked_threads or threads_per_device)
            if torch.get_num_interop_threads() > 1:  # it can be set once a process
                torch.set_num_interop_threads(1)
        self._connect()
        return [str(self.device) if self.on_gpus else f"cpu:{self.local_rank}"]

    def _connect(self):
        """Connect to the other processes."""


def _without_blocks(run):
    """Why the blocks of a run's model cannot be compiled; None if they can.

    They are alike in models that define RECOMPUTES, or BLOCKS = True (pytorch/building.py).
    """
    model = plugins.constants("pytorch/models", run.model)
    if model.get("BLOCKS", model.get("RECOMPUTES")):
        return None
    return (
        f"compile_mode blocks is of models of blocks that are alike, as gpt2_small; {run.model} "
        "has none (a model file of your own says BLOCKS = True)"
    )


def _keep_freed_memory():
    """Make the C library keep the memory that a step frees, as PyTorch itself does on GPUs.

    Otherwise glibc returns it to the system, which clears each page before the next step gets it:
    with LeNet-5 that took a fifth of a step. The user's settings for glibc take precedence.
    """
    set_by_user = [name for name in os.environ if name.startswith("MALLOC_")]
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt and not set_by_user and "GLIBC_TUNABLES" not in os.environ:
        for parameter, value in MALLOPT.values():
            mallopt(parameter, value)
