"""PyTorch's DataLoader over our datasets (`input: torch`), and prefetching to a device.

- Each batch is copied from the host while the step before it computes. A copy overlaps with kernels
  only if it is from pinned memory and on another stream. Pinning takes longer than a copy, so a few
  buffers are pinned once and used in turn. So are buffers on the device: no step allocates any.
- Batch n is copied into the buffers of batch n - 2, once step n - 2 has finished, and so during
  step n - 1. The host waits for step n - 2 only.
- V. Moens. A guide on good usage of non_blocking and pin_memory() in PyTorch.
  docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

import itertools
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from dlbench.machine import limits
from dlbench.trainer.pytorch.building import channels_first
from dlbench.trainer.reading.converted import Batch
from dlbench.trainer.reading.reader import Batches, DatasetReader, Order, initialize_worker

AT_ONCE = 2  # batches on the device: that of the present step, and the next


class DataLoaderReader(DatasetReader):
    """The items of a converted dataset, for one process of a run, through a DataLoader."""

    def training_batches(
        self, batch: int, seed: int, rank: int = 0, size: int = 1, first_step: int = 0
    ) -> Iterator[Batch]:
        """As our own reader; `prefetch` is of each worker (2 if not given)."""
        loader = DataLoader(
            _Tensors(self, first_step, Order(batch, seed, rank, size)),
            batch_size=None,  # they are batches already
            num_workers=self.workers or limits.usable_threads(),
            prefetch_factor=self.prefetch,
            multiprocessing_context="spawn",  # a fork would copy the threads' locks
            worker_init_fn=initialize_worker,
            generator=torch.Generator(),  # drawing from the default one would change dropout
        )
        for inputs, targets in loader:
            yield inputs.numpy(), targets.numpy()


class _Tensors(Batches):
    """Batches as tensors, which need memory that can be written."""

    def __getitem__(self, number: int) -> Any:
        batch = super().__getitem__(number)
        return tuple(torch.from_numpy(np.require(part, requirements=["C", "W"])) for part in batch)


def tensor_of(values: np.ndarray) -> torch.Tensor:
    """A tensor in the memory of an array; integers other than pixels become int64."""
    with warnings.catch_warnings():  # nothing writes to it
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        tensor = torch.from_numpy(values)
    return tensor if tensor.ndim > 3 or tensor.is_floating_point() else tensor.long()


def ahead(
    batches: Iterable[tuple[np.ndarray, ...]], device: torch.device
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Batches on a device; images have channels first.

    A batch is valid for all work that is launched on the current stream before the caller asks for
    the next batch.
    """
    device_module: Any = torch.get_device_module(device)
    stream = device_module.Stream()
    all_buffers = [_Buffers(device, stream) for _ in range(AT_ONCE)]
    for buffers, batch in zip(itertools.cycle(all_buffers), batches, strict=False):
        yield buffers.copy(batch)
        buffers.used.record(device_module.current_stream())


class _Buffers:
    """The pinned buffers of one batch in host memory, and its buffers on the device.

    `used` is an event after the step that computes with the batch.
    """

    def __init__(self, device: torch.device, stream: Any):
        self._device_module: Any = torch.get_device_module(device)
        self._device, self._stream = device, stream
        self.used, self._copied = self._device_module.Event(), self._device_module.Event()
        self._host: list[torch.Tensor] = []

    def copy(self, batch: tuple[np.ndarray, ...]) -> tuple[torch.Tensor, ...]:
        """Copy a batch to the device. Returns its tensors there, for the current stream."""
        tensors = list(map(tensor_of, batch))
        current = self._device_module.current_stream()
        if [tensor.shape for tensor in tensors] != [tensor.shape for tensor in self._host]:
            self._allocate(tensors)
        self._copied.synchronize()  # until the previous copy has read the pinned buffers
        for host, tensor in zip(self._host, tensors, strict=True):
            host.copy_(tensor)
        self._stream.wait_event(self.used)
        with self._device_module.stream(self._stream):
            for on_device, host in zip(self._on_device, self._host, strict=True):
                on_device.copy_(host, non_blocking=True)
        self._copied.record(self._stream)
        current.wait_event(self._copied)
        return tuple(map(channels_first, self._on_device))

    def _allocate(self, tensors):
        pinned = self._device.type != "cpu"
        self._host = [torch.empty_like(tensor, pin_memory=pinned) for tensor in tensors]
        self._on_device = [torch.empty_like(tensor, device=self._device) for tensor in tensors]
        # Earlier work on the current stream may still use this memory.
        self._stream.wait_stream(self._device_module.current_stream())
        if pinned:
            for on_device in self._on_device:
                on_device.record_stream(self._stream)
