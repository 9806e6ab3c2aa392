"""Strategies of PyTorch, one file each: how the work of a step is spread over devices.

A strategy file defines a class `Strategy` on `Base` below. What the class says about itself is
read by the workflow, where PyTorch is not installed; its instances live in the trainer. So PyTorch
is imported inside the methods.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from dlbench.machine import limits
from dlbench.trainer.strategy import BaseStrategy, Spec, digest

# Of glibc's malloc.h, with the largest values that it takes.
KEEPING = {"M_MMAP_THRESHOLD": (-3, 32 << 20), "M_TRIM_THRESHOLD": (-1, (1 << 31) - 1)}
Tensor = Any  # PyTorch's own, as are modules: it is not imported yet
Module = Any
Batch = tuple[np.ndarray, ...]  # in the memory of the host: inputs and targets


class Base(BaseStrategy):
    """One process on one device: what the other strategies change.

    Attributes:
        device: of this process, a torch.device.
        visible_gpu_count: how many GPUs PyTorch sees; 0 if the devices are CPUs.
        replicates_weights: whether each device has all weights, as others have them.
        uses_autocast: whether autocast chooses what is computed in bfloat16 or float16; otherwise
            the model as `parallelize` returns it computes in the precision of the run.
    """

    replicates_weights = True
    uses_autocast = True

    def __init__(self, spec: Spec, device: str, folder: str | Path = "."):
        # Read when PyTorch is imported. With its caches, compile times would be too short.
        os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
        if spec.deterministic:  # read when cuBLAS is first used
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        super().__init__(spec, device, folder)

    def local_shard(self, tensor: Tensor) -> Tensor:
        """The part of a weight, or of its optimizer's state, that this process holds."""
        return tensor

    def parallelize(self, model: Module) -> Module:
        """The model as a training step calls it.

        All devices get the weights of rank 0. After a backward pass through what it returns,
        gradients are means over all devices.
        """
        return model

    def gradient_sync(self, model: Module, enabled: bool) -> AbstractContextManager[Any]:
        """The context of a forward and backward pass, which exchanges gradients if wanted.

        Args:
            model: what `parallelize` returned.
        """
        return contextlib.nullcontext()

    def to_devices(self, values: np.ndarray) -> Tensor:
        """A tensor on the device of this process: images with channels first, numbers as int64.

        Images keep their layout in memory, which is PyTorch's channels_last.
        """
        from dlbench.trainer.pytorch import building, host_to_device

        return building.channels_first(host_to_device.tensor_of(values).to(self.device))

    def prefetch_to_devices(self, batches: Iterator[Batch]) -> Iterator[tuple[Tensor, ...]]:
        """Batches on the device of this process; GPUs copy them beside what they compute."""
        if not self.on_gpus:
            return (tuple(map(self.to_devices, batch)) for batch in batches)
        from dlbench.trainer.pytorch import host_to_device

        return host_to_device.ahead(batches, self.device)

    def weights_sha256(self, weights: Sequence[Tensor]) -> list[str]:
        """One digest of all weights for each device of this process."""
        return [digest(weight.detach().cpu().numpy() for weight in weights)]

    def _configure(self, device, threads_per_device):
        """Make PyTorch use exactly the device of this process, and return its name."""
        import torch

        if device == "gpu":
            self.visible_gpu_count = torch.cuda.device_count()
            (number,) = self.select_gpus(range(self.visible_gpu_count))
            self.device = torch.device("cuda", number)
            torch.cuda.set_device(self.device)
            torch.set_num_threads(limits.usable_threads())
        else:
            self.visible_gpu_count = 0
            self.device = torch.device("cpu")
            _keep_memory()
            torch.set_num_threads(threads_per_device)
            if torch.get_num_interop_threads() > 1:  # it can be set once a process
                torch.set_num_interop_threads(1)
        self._connect()
        return [str(self.device) if self.on_gpus else f"cpu:{self.local_rank}"]

    def _connect(self):
        """Find the other processes."""


def _keep_memory():
    """Have the C library keep the memory that a step frees, as PyTorch itself does on GPUs.

    Otherwise glibc returns it to the system, which clears each page before the next step gets it:
    with LeNet-5 that took a fifth of a step. Settings of the user for glibc are respected.
    """
    set_already = [name for name in os.environ if name.startswith("MALLOC_")]
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other libraries have none
    if mallopt and not set_already and "GLIBC_TUNABLES" not in os.environ:
        for parameter, value in KEEPING.values():
            mallopt(parameter, value)
