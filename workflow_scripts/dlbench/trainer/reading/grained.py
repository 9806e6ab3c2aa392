"""Grain over our datasets: `input: grain`.

- An element of Grain's dataset is a whole batch, so that the order of items is that of all other
  readers. Worker w of n prepares the batches w, w + n, w + 2n ..., and Grain takes them from the
  workers in turn.
- The order follows from the manifest and the seed. So a worker reads only the records of its own
  batches, wherever they are. If the dataset is kept in memory, each worker has a copy of it.
- Held-out items are read as by our own reader.
"""

import bisect
import functools
import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

from dlbench import Error
from dlbench.machine import limits
from dlbench.trainer.reading import records
from dlbench.trainer.reading.converted import POSITIONS
from dlbench.trainer.reading.stored import Batch, DatasetReader, ignore_signals, positions_of

Order = tuple[int, int, int, int, int]  # batch, seed, rank, size and first step
CACHED_ORDERS = 2  # of epochs: a batch may span two


class GrainReader(DatasetReader):
    """The items of a converted dataset, for one process of a run, through Grain."""

    def training_batches(
        self, batch: int, seed: int, rank: int = 0, size: int = 1, first_step: int = 0
    ) -> Iterator[Batch]:
        """As dlbench/trainer/reading/stored.py; `prefetch` is of each worker (1 if not given).

        Raises:
            Error: Grain is not installed, an item cannot be read, or a worker has ended.
        """
        grain = _grain()
        source = _Batches(self, (batch, seed, rank, size, first_step))
        workers = grain.MultiprocessingOptions(
            num_workers=self.workers or limits.usable_threads(),
            per_worker_buffer_size=self.prefetch or 1,
        )
        # A worker prepares one batch after the other; its buffer limits how far it is ahead.
        one_by_one = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
        batches = iter(
            grain.MapDataset.source(source)
            .to_iter_dataset(one_by_one)
            .mp_prefetch(workers, _initialize_worker)
        )
        try:
            yield from batches
        except RuntimeError as error:  # Grain's own; exceptions of workers keep their types
            raise Error(
                f"a worker of input grain has ended: {error} If the kernel ended it for memory: "
                "each worker needs some of its own, so give fewer input_workers"
            ) from error
        finally:
            batches.close()

    def batch_at(self, number: int, order: Order) -> Batch:
        """The batch with a number, from 0, prepared in this process alone.

        Raises:
            Error: an item cannot be read; the message has its shard and its number there.
        """
        batch, seed, rank, size, first_step = order
        numbers, positions = self._items_of(first_step + number, batch, seed, rank, size)
        selected = numbers if self.in_memory else list(map(self._record, numbers.tolist()))
        inputs, targets = self._augmented(selected, positions, seed)
        if self.encoded:
            items = zip(numbers.tolist(), inputs, np.split(positions, batch), strict=True)
            inputs = np.concatenate([self._image(*item, seed) for item in items])
        return inputs, targets

    def _items_of(self, step, batch, seed, rank, size):
        """(numbers, positions) of the items of a step: their numbers in the training split."""
        if self.in_memory:
            positions = positions_of(step, batch, rank, size)
            return self._numbers(positions, seed), positions
        start, end = self._share(rank, size)
        taken = step * batch + np.arange(batch, dtype=np.int64)
        epochs, places = np.divmod(taken, end - start)
        numbers = np.empty(batch, np.int64)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            numbers[here] = self._ordered(epoch, seed, start, end)[places[here]]
        return numbers, epochs * self.records("train") + start + places

    @functools.cached_property
    def _ordered(self):
        """A function that returns the numbers of a share's records in the order of an epoch."""
        first_of = dict(zip(self._paths, self._firsts, strict=True))

        def numbers(path, first, end):
            return iter(range(first_of[path] + first, first_of[path] + end))

        @functools.lru_cache(maxsize=CACHED_ORDERS)
        def ordered(epoch, seed, start, end):
            drawn = self._epoch(epoch, seed, start, end, numbers)
            return np.fromiter((number for number, _ in drawn), np.int64, end - start)

        return ordered

    @functools.cached_property
    def _paths(self) -> list[Path]:
        return [path for path, _ in self.shards("train")]

    @functools.cached_property
    def _firsts(self) -> list[int]:
        """The number of the first record of each shard in the split."""
        counts = [count for _, count in self.shards("train")]
        return [0, *itertools.accumulate(counts)][:-1]

    @functools.cached_property
    def _places(self):
        """A cached function that returns the offsets of the records of a shard."""
        counts = dict(self.shards("train"))
        return functools.cache(lambda path: records.places(path, counts[path]))

    def _shard_of(self, number):
        """(path of its shard, its number there) of an item of the training split."""
        shard = bisect.bisect_right(self._firsts, number) - 1
        return self._paths[shard], number - self._firsts[shard]

    def _record(self, number):
        path, index = self._shard_of(number)
        return records.payload_at(path, int(self._places(path)[index]))

    def _image(self, number, encoded, position, seed):
        """One photograph with augmentation."""
        try:
            return self._decoded([encoded], position, seed)
        except Error as error:
            path, index = self._shard_of(number)
            raise Error(f"{path}: record {index}: {error}") from error


class _Batches:
    """A Grain data source: the batches of a process by their numbers."""

    def __init__(self, data: GrainReader, order: Order):
        self._data, self._order = data, order

    def __len__(self) -> int:
        return POSITIONS  # more than any run takes

    def __getitem__(self, number: int) -> Batch:
        return self._data.batch_at(int(number), self._order)


def _grain() -> ModuleType:
    """The module grain; absl's flags are marked as parsed, because Grain under JAX reads one."""
    try:
        import grain
        from absl import flags
    except ModuleNotFoundError as error:
        raise Error(
            f"input grain needs the package {error.name}, which {sys.executable} does not have: "
            "`dlbench environment envs/ENVIRONMENT --extra grain` adds it "
            "to an environment of ours, `pip install grain` to another Python"
        ) from error
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    return grain


def _initialize_worker(number: int, count: int) -> None:
    """Runs first in a worker: ignore signals, which the trainer handles, and end with the trainer.

    orphans.end_with_parent would not do: the kernel reports the end of the thread that started the
    worker, which Grain ends earlier.
    """
    ignore_signals()
    trainer = multiprocessing.parent_process()
    threading.Thread(target=_end_with, args=[trainer], daemon=True).start()


def _end_with(process):
    process.join()
    os.kill(os.getpid(), signal.SIGKILL)
