"""PyTorch's DataLoader over our datasets: `input: torch`.

- Its worker processes prepare whole batches: worker w of n the batches w, w + n, w + 2n ... The
  loader takes them from the workers in turn, so that the order of items is that of all readers.
- If the dataset is kept in memory, each worker has a copy of it. If not, each worker reads all
  records and decodes those of its batches.
- Held-out items are read as by our own reader.
"""

import os
from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from dlbench.machine import limits
from dlbench.trainer.reading.stored import Batch, DatasetReader, initialize_worker


class DataLoaderReader(DatasetReader):
    """The items of a converted dataset, for one process of a run, through a DataLoader."""

    def training_batches(
        self, batch: int, seed: int, rank: int = 0, size: int = 1, first_step: int = 0
    ) -> Iterator[Batch]:
        """As dlbench/trainer/reading/stored.py; `prefetch` is of each worker (2 if not given)."""
        workers = self.workers or limits.usable_threads()
        loader = DataLoader(
            _Batches(self, (batch, seed, rank, size, first_step)),
            batch_size=None,  # they are batches already
            num_workers=workers,
            prefetch_factor=self.prefetch,
            multiprocessing_context="spawn",  # a fork would copy the threads' locks
            worker_init_fn=_WorkerInit(os.getpid()),
            generator=torch.Generator(),  # drawing from the default one would change dropout
        )
        for inputs, targets in loader:
            yield inputs.numpy(), targets.numpy()


class _Batches(IterableDataset):
    """The batches of a worker."""

    def __init__(self, data: DatasetReader, order: tuple[int, ...]):
        self._data, self._order = data, order

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        worker = get_worker_info()
        torch.set_num_threads(1)
        for inputs, targets in self._data.batches_of_worker(
            worker.num_workers, worker.id, self._order
        ):
            yield _tensor(inputs), _tensor(targets)


def _tensor(array):
    """A tensor of an array, which may be a view of read-only bytes."""
    return torch.from_numpy(np.require(array, requirements="CW"))


class _WorkerInit:
    """Called in a worker before its first batch: see `initialize_worker`."""

    def __init__(self, parent: int):
        self._parent = parent

    def __call__(self, worker: int) -> None:
        initialize_worker(self._parent)
