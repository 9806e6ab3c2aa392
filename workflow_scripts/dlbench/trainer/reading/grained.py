"""Grain in front of our datasets: `input: grain`.

- What Grain's dataset has at a number is a whole batch, so that the order of items is that of all
  other readers. Its worker processes make whole batches: worker w of n those with the numbers w,
  w + n, w + 2n ... Grain asks the workers in turn.
- The order follows from the manifest and the seed. So a worker reads the records of its batches
  alone, wherever they lie. Of a dataset that is kept in memory each worker keeps it in its own.
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
from dlbench.trainer.reading.stored import Batch, Stored, ignore_signals, positions_of

Order = tuple[int, int, int, int, int]  # batch, seed, rank, size and first step
ORDERS_KEPT = 2  # of epochs: a batch may have items of two


class Grained(Stored):
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
        # A worker makes one batch after the other; how far ahead, its buffer says.
        one_by_one = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
        batches = iter(
            grain.MapDataset.source(source)
            .to_iter_dataset(one_by_one)
            .mp_prefetch(workers, _begin_worker)
        )
        try:
            yield from batches
        except RuntimeError as error:  # of Grain; those of workers arrive as they are
            raise Error(
                f"a worker of input grain has ended: {error} If the kernel ended it for memory: "
                "each worker needs some of its own, so give fewer input_workers"
            ) from error
        finally:
            batches.close()

    def at(self, number: int, order: Order) -> Batch:
        """A batch by its number from 0, made in this process alone.

        Raises:
            Error: an item cannot be read; the message has its shard and its number there.
        """
        batch, seed, rank, size, first_step = order
        numbers, positions = self._drawn(first_step + number, batch, seed, rank, size)
        what = numbers if self.in_memory else [self._record(one) for one in numbers.tolist()]
        inputs, targets = self._made(what, positions, seed)
        if self.encoded:
            each = zip(numbers.tolist(), inputs, np.split(positions, batch), strict=True)
            inputs = np.concatenate([self._image(*one, seed) for one in each])
        return inputs, targets

    def _drawn(self, step, batch, seed, rank, size):
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
        """A function that gives the numbers of the records of a share in the order of an epoch."""
        first_of = dict(zip(self._paths, self._firsts, strict=True))

        def numbers(path, first, end):
            return iter(range(first_of[path] + first, first_of[path] + end))

        @functools.lru_cache(maxsize=ORDERS_KEPT)
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
        """A function that gives where the records of a shard begin; what it found is kept."""
        counts = dict(self.shards("train"))
        return functools.cache(lambda path: records.places(path, counts[path]))

    def _where(self, number):
        """(path of its shard, its number there) of an item of the training split."""
        shard = bisect.bisect_right(self._firsts, number) - 1
        return self._paths[shard], number - self._firsts[shard]

    def _record(self, number):
        path, there = self._where(number)
        return records.payload_at(path, int(self._places(path)[there]))

    def _image(self, number, encoded, position, seed):
        """One photograph as training takes it."""
        try:
            return self._decoded([encoded], position, seed)
        except Error as error:
            path, there = self._where(number)
            raise Error(f"{path}: record {there}: {error}") from error


class _Batches:
    """What Grain takes for a source: the batches of a process by their numbers."""

    def __init__(self, data: Grained, order: Order):
        self._data, self._order = data, order

    def __len__(self) -> int:
        return POSITIONS  # more than any run takes

    def __getitem__(self, number: int) -> Batch:
        return self._data.at(int(number), self._order)


def _grain() -> ModuleType:
    """Grain, which beside JAX asks for a flag of absl's: they count as parsed."""
    try:
        import grain
        from absl import flags
    except ModuleNotFoundError as error:
        raise Error(
            f"input grain needs the package {error.name}, which {sys.executable} does not have: "
            "`python workflow_scripts/make_environment.py envs/ENVIRONMENT --extra grain` adds it "
            "to an environment of ours, `pip install grain` to another Python"
        ) from error
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    return grain


def _begin_worker(number: int, count: int) -> None:
    """In a worker, first: leave signals to the trainer, and end when that ends.

    The kernel would tell of the end of the thread that started it, which Grain ends earlier.
    """
    ignore_signals()
    trainer = multiprocessing.parent_process()
    threading.Thread(target=_end_with, args=[trainer], daemon=True).start()


def _end_with(process):
    process.join()
    os.kill(os.getpid(), signal.SIGKILL)
