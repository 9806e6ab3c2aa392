"""Batches of the host on a device of its own memory, each copied beside the step before it.

- A copy runs beside kernels only from pinned memory and on another stream than theirs. Pinning
  takes longer than a copy does, so a few buffers are pinned once and used in turn, and so are those
  of the device: no step allocates any.
- Batch n is copied into the buffers of batch n - 2, once step n - 2 has ended, and so beside step
  n - 1. The host waits for no step but that.
- V. Moens. A guide on good usage of non_blocking and pin_memory() in PyTorch.
  docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

import itertools
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from dlbench.trainer.pytorch.building import channels_first

AT_ONCE = 2  # batches on the device: that of a step, and the next


def tensor_of(values: np.ndarray) -> torch.Tensor:
    """A tensor in the memory of an array; whole numbers but those of pixels are int64."""
    with warnings.catch_warnings():  # nothing writes to it
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        tensor = torch.from_numpy(values)
    return tensor if tensor.ndim > 3 or tensor.is_floating_point() else tensor.long()


def ahead(
    batches: Iterable[tuple[np.ndarray, ...]], device: torch.device
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Batches on a device, of images with channels first.

    Each may be used by what is launched on the current stream before the next one is asked for.
    """
    of_device: Any = torch.get_device_module(device)
    stream = of_device.Stream()
    buffers = [_Buffers(device, stream) for _ in range(AT_ONCE)]
    for own, batch in zip(itertools.cycle(buffers), batches, strict=False):
        yield own.copied(batch)
        own.used.record(of_device.current_stream())


class _Buffers:
    """Where one batch is pinned in the host, and where it lies on the device.

    Args:
        stream: of the copies.

    Attributes:
        used: an event after the step that computes with the batch.
    """

    def __init__(self, device: torch.device, stream: Any):
        self._of_device: Any = torch.get_device_module(device)
        self._device, self._stream = device, stream
        self.used, self._copied = self._of_device.Event(), self._of_device.Event()
        self._host: list[torch.Tensor] = []

    def copied(self, batch: tuple[np.ndarray, ...]) -> tuple[torch.Tensor, ...]:
        """The batch on the device, for the current stream."""
        tensors = list(map(tensor_of, batch))
        current = self._of_device.current_stream()
        if [tensor.shape for tensor in tensors] != [tensor.shape for tensor in self._host]:
            self._allocate(tensors)
        self._copied.synchronize()  # what was pinned there before has been read
        for host, tensor in zip(self._host, tensors, strict=True):
            host.copy_(tensor)
        self._stream.wait_event(self.used)
        with self._of_device.stream(self._stream):
            for there, host in zip(self._there, self._host, strict=True):
                there.copy_(host, non_blocking=True)
        self._copied.record(self._stream)
        current.wait_event(self._copied)
        return tuple(map(channels_first, self._there))

    def _allocate(self, tensors):
        pinned = self._device.type != "cpu"
        self._host = [torch.empty_like(tensor, pin_memory=pinned) for tensor in tensors]
        self._there = [torch.empty_like(tensor, device=self._device) for tensor in tensors]
        # What had this memory before may still be computing with it on the current stream.
        self._stream.wait_stream(self._of_device.current_stream())
        if pinned:
            for there in self._there:
                there.record_stream(self._stream)
