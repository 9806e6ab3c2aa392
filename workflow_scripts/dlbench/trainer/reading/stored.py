"""The stream of a converted dataset's items, in the order of TensorFlow's pipelines.

- tensorflow/pipelines.py defines the order; this file computes the same without TensorFlow.
- Worker processes, by default one for each usable core, decode photographs of the next batches
  while the devices compute. Batches of arrays are prepared in the trainer's process, or in threads
  if a run sets input_workers or prefetch.
"""

import collections
import functools
import importlib
import itertools
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np

from dlbench.common import orphans
from dlbench.machine import limits
from dlbench.trainer.reading import pictures, random_numbers, records
from dlbench.trainer.reading.converted import (
    SHARDS_AT_ONCE,
    SHUFFLE_ROUNDS,
    SHUFFLED_RECORDS,
    ConvertedDataset,
)

Batch = tuple[np.ndarray, np.ndarray]  # (inputs, targets)
RECORDS_AT_ONCE = 1024
BATCHES_AHEAD = 2
SEEDS = 2**31 - 1  # tf.data takes seeds below this


class DatasetReader(ConvertedDataset):
    """The items of a converted dataset, for one process of a run."""

    _processes: ProcessPoolExecutor | None = None

    def training_batches(
        self, batch: int, seed: int, rank: int = 0, size: int = 1, first_step: int = 0
    ) -> Iterator[Batch]:
        """Endless batches for one of `size` processes.

        Args:
            batch: items per step of this process.
            rank: of this process.
            first_step: number of steps that are skipped, because the run was resumed after them.
        """
        stream = self._stream(batch, seed, rank, size, first_step)
        if self.encoded:
            random = self.augmentation == "crop_flip"
            loaded = ((*self._load(selected), positions) for selected, positions in stream)
            yield from self._in_processes(
                ((encoded, seed, positions if random else None), targets)
                for encoded, targets, positions in loaded
            )
        elif self.workers or self.prefetch:
            yield from self._in_threads(stream, seed)
        else:
            for selected, positions in stream:
                yield self._augmented(selected, positions, seed)

    def batches_of_worker(self, stride: int, first: int, order: tuple[int, ...]) -> Iterator[Batch]:
        """The batches of a worker process: every `stride`-th one, prepared in this process alone.

        For readers that start their own workers: each worker reads all records and decodes those of
        its batches.

        Args:
            stride: number of workers.
            first: number of this worker, from 0.
            order: batch, seed, rank, size and first step, as `training_batches` takes them.
        """
        seed = order[1]
        for selected, positions in self._stream(*order, stride=stride, offset=first):
            inputs, targets = self._augmented(selected, positions, seed)
            if self.encoded:
                inputs = self._decoded(inputs, positions, seed)
            yield inputs, targets

    def __getstate__(self) -> dict[str, Any]:
        """The state for worker processes, which read the dataset themselves."""
        module = self.text and self.text.__name__
        return vars(self) | {"text": module, "_rows": {}, "_processes": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.text = self.text and importlib.import_module(self.text)

    def validation_batches(self, batch: int) -> Iterator[Batch]:
        """All held-out items once, in the order of the shards; the last batch may be smaller."""
        batches = self._held_out(batch)
        if self.mask is None:
            yield from batches
            return
        first = 0
        for tokens, _ in batches:
            positions = np.arange(first, first + len(tokens))
            yield self.text.masked(tokens, positions, self.text.HELD_OUT_SEED, self.mask)
            first += len(tokens)

    def _held_out(self, batch):
        if self.streamed:
            row, count = self.row("validation"), self.records("validation")
            for first in range(0, count, batch):
                indices = np.arange(first, min(first + batch, count))
                yield self.text.windows(row, indices, self.item_shape[0])
            return
        payloads = itertools.chain.from_iterable(
            records.payloads(path) for path, _ in self.shards("validation")
        )
        batches = (records.parsed(self, some) for some in _batched(payloads, batch))
        if not self.encoded:
            yield from batches
            return
        yield from self._in_processes(((encoded, 0, None), targets) for encoded, targets in batches)

    def close(self) -> None:
        """Stop the worker processes."""
        if self._processes:
            self._processes.shutdown(wait=False, cancel_futures=True)
            self._processes = None

    def _stream(self, batch, seed, rank, size, first_step, *, stride=1, offset=0):
        """(selected, positions) of each batch; `selected` are numbers of items, or records."""
        if self.in_memory:
            for step in itertools.count(first_step + offset, stride):
                positions = positions_of(step, batch, rank, size)
                yield self._numbers(positions, seed), positions
        start, end = self._share(rank, size)
        first_epoch, left_out = divmod(first_step * batch, end - start)
        stream = itertools.chain.from_iterable(
            self._epoch(epoch, seed, start, end) for epoch in itertools.count(first_epoch)
        )
        batches = _batched(itertools.islice(stream, left_out, None), batch)
        for some in itertools.islice(batches, offset, None, stride):
            payloads, positions = zip(*some, strict=True)
            yield payloads, np.asarray(positions, np.int64)

    def _share(self, rank, size):
        """The bounds of a process's share of an epoch's records: first, and last + 1."""
        total = self.records("train")
        return total * rank // size, total * (rank + 1) // size

    def _numbers(self, positions, seed):
        """The numbers of the items at positions of the endless order."""
        count, indices = self.records("train"), np.empty(len(positions), np.int64)
        for epoch in np.unique(positions // count).tolist():
            here = positions // count == epoch
            indices[here] = random_numbers.shuffled_places(
                positions[here] % count, (seed, epoch, 0), count - 1, SHUFFLE_ROUNDS
            )
        return indices

    def _load(self, selected):
        """(inputs, targets) of a batch without augmentation; photographs stay encoded."""
        return self._take(selected) if self.in_memory else records.parsed(self, selected)

    def _augmented(self, selected, positions, seed):
        """(inputs, targets) of a batch with augmentation; photographs stay encoded."""
        inputs, targets = self._load(selected)
        if self.mask is not None:
            return self.text.masked(inputs, positions, seed, self.mask)
        if self.augmentation == "shift_flip":
            return pictures.shifted(inputs, seed, positions), targets
        return inputs, targets

    def _decoded(self, encoded, positions, seed):
        """Photographs with augmentation, decoded in this process."""
        height, width = self.item_shape[:2]
        random = positions.tolist() if self.augmentation == "crop_flip" else None
        return _decode(encoded, seed, random, (height, width))

    @functools.cached_property
    def _take(self):
        """A function from numbers of training items in memory to their (inputs, targets)."""
        if self.streamed:
            row, length = self.row("train"), self.item_shape[0]
            return lambda indices: self.text.windows(row, indices, length)
        payloads = itertools.chain.from_iterable(
            records.payloads(path) for path, _ in self.shards("train")
        )
        parts = [records.parsed(self, some) for some in _batched(payloads, RECORDS_AT_ONCE)]
        inputs, targets = (_joined(part) for part in zip(*parts, strict=True))

        def take(indices):
            taken = [inputs[i] for i in indices] if self.encoded else inputs[indices]
            return taken, targets[indices]

        return take

    def _epoch(self, epoch, seed, start, end, read=records.payloads):
        """(record, position) of one process's share of an epoch.

        Args:
            read: (path, first, end) -> an iterator over these records of a shard, or their numbers.
        """
        shards, before, parts = self.shards("train"), 0, []
        for number in random_numbers.permutation(len(shards), seed, epoch):
            path, count = shards[number]
            low, high = (min(max(place - before, 0), count) for place in (start, end))
            before += count
            if high > low:
                parts.append(read(path, low, high))
        coming = records.interleaved(parts, SHARDS_AT_ONCE)
        first, second = seed % SEEDS, (seed * 1_000_003 + epoch) % SEEDS
        numbers = random_numbers.stream(first, second or (0 if first else SEEDS))
        window = min(SHUFFLED_RECORDS, end - start)
        positions = itertools.count(epoch * self.records("train") + start)
        return zip(records.shuffled(coming, window, numbers), positions, strict=False)

    @property
    def _ahead(self):
        """Number of batches that threads or workers prepare ahead."""
        return BATCHES_AHEAD if self.prefetch is None else self.prefetch

    def _in_threads(self, stream, seed):
        """Batches of arrays in order; threads prepare some of them ahead."""
        pending: collections.deque[Future] = collections.deque()
        with ThreadPoolExecutor(self.workers or 1) as threads:
            for selected, positions in stream:
                pending.append(threads.submit(self._augmented, selected, positions, seed))
                if len(pending) > self._ahead:
                    yield pending.popleft().result()

    def _in_processes(self, work: Iterator[tuple[tuple, np.ndarray]]) -> Iterator[Batch]:
        """Decoded batches in order; worker processes decode some of them ahead."""
        pending: collections.deque[tuple[list[Future], np.ndarray]] = collections.deque()
        while True:
            for job, targets in itertools.islice(work, 1 + self._ahead - len(pending)):
                pending.append((self._submit(*job), targets))
            if not pending:
                return
            parts, targets = pending.popleft()
            yield np.concatenate([part.result() for part in parts]), targets

    def _submit(self, encoded, seed, positions):
        """Start decoding the images of a batch, a part in each worker."""
        count = self.workers or limits.usable_threads()
        if self._processes is None:
            self._processes = ProcessPoolExecutor(
                count,
                multiprocessing.get_context("spawn"),
                initializer=initialize_worker,
                initargs=[os.getpid()],
            )
        size, each = self.item_shape[:2], -(-len(encoded) // count)
        return [
            self._processes.submit(
                _decode,
                encoded[first : first + each],
                seed,
                None if positions is None else positions[first : first + each].tolist(),
                size,
            )
            for first in range(0, len(encoded), each)
        ]


def _decode(encoded: list[bytes], seed: int, positions: Any, size: tuple[int, int]) -> np.ndarray:
    """Runs in a worker: random crops of images, or central ones if `positions` is None."""
    if positions is None:
        return pictures.centred(encoded, size)
    return pictures.cropped(encoded, seed, positions, size)


def initialize_worker(parent: int) -> None:
    """Runs in a worker: ignore signals, which the trainer handles, and end with the trainer."""
    ignore_signals()
    orphans.end_with_parent(parent, signal.SIGKILL)


def ignore_signals() -> None:
    """Ignore the signals that a launcher sends to all processes; the trainer handles them."""
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def positions_of(step: int, batch: int, rank: int, size: int) -> np.ndarray:
    """The positions in the endless order of a process's items in a step, if kept in memory."""
    return step * batch * size + rank + size * np.arange(batch, dtype=np.int64)


def _batched(items: Iterator[Any], count: int) -> Iterator[list[Any]]:
    while some := list(itertools.islice(items, count)):
        yield some


def _joined(parts):
    """Lists or arrays one after another."""
    if isinstance(parts[0], list):
        return list(itertools.chain.from_iterable(parts))
    return np.concatenate(parts)
