"""The stream of a converted dataset's items, in the order of TensorFlow's pipelines.

- tensorflow/pipelines.py defines the order; this file computes the same without TensorFlow.
- Worker processes, one for each core that this process may use or as many as a run says, decode
  photographs of the next batches while the devices compute. Arrays are made in the process itself,
  or in threads where a run names workers or batches ahead.
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
    Converted,
)

Batch = tuple[np.ndarray, np.ndarray]  # (inputs, targets)
RECORDS_AT_ONCE = 1024
BATCHES_AHEAD = 2
SEEDS = 2**31 - 1  # TensorFlow's operations of the pipeline take seeds below this


class Stored(Converted):
    """The items of a converted dataset, for one process of a run."""

    _processes: ProcessPoolExecutor | None = None

    def training_batches(
        self, batch: int, seed: int, rank: int = 0, size: int = 1, first_step: int = 0
    ) -> Iterator[Batch]:
        """Endless batches for one of `size` processes.

        Args:
            batch: items per step of this process.
            rank: its number.
            first_step: steps that an earlier part of the run has done; their batches are left out.
        """
        stream = self._stream(batch, seed, rank, size, first_step)
        if self.encoded:
            random = self.variation == "crop_flip"
            read = ((*self._taken(what), positions) for what, positions in stream)
            yield from self._in_processes(
                ((encoded, seed, positions if random else None), targets)
                for encoded, targets, positions in read
            )
        elif self.workers or self.prefetch:
            yield from self._in_threads(stream, seed)
        else:
            for what, positions in stream:
                yield self._made(what, positions, seed)

    def batches_of_worker(self, stride: int, first: int, order: tuple[int, ...]) -> Iterator[Batch]:
        """Every `stride`-th of the batches, made in this process alone.

        For those who start processes of their own: all of these read all records, and each decodes
        its batches.

        Args:
            stride: how many processes share the batches.
            first: number of this one, from 0.
            order: batch, seed, rank, size and first step, as `training_batches` takes them.
        """
        seed = order[1]
        for what, positions in self._stream(*order, stride=stride, offset=first):
            inputs, targets = self._made(what, positions, seed)
            if self.encoded:
                inputs = self._decoded(inputs, positions, seed)
            yield inputs, targets

    def __getstate__(self) -> dict[str, Any]:
        """For processes of others, which read the dataset themselves."""
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
        for words, _ in batches:
            positions = np.arange(first, first + len(words))
            yield self.text.masked(words, positions, self.text.HELD_OUT_SEED, self.mask)
            first += len(words)

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
        """End the processes that decode."""
        if self._processes:
            self._processes.shutdown(wait=False, cancel_futures=True)
            self._processes = None

    def _stream(self, batch, seed, rank, size, first_step, *, stride=1, offset=0):
        """(what, positions) of each batch; what is for `_taken`: numbers of items, or records."""
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
        """The first record of a process's share in an epoch, and the one after its last."""
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

    def _taken(self, what):
        """(inputs, targets) of a batch as they are kept; photographs are encoded."""
        return self._take(what) if self.in_memory else records.parsed(self, what)

    def _made(self, what, positions, seed):
        """(inputs, targets) of a batch, varied; photographs are left encoded."""
        inputs, targets = self._taken(what)
        if self.mask is not None:
            return self.text.masked(inputs, positions, seed, self.mask)
        if self.variation == "shift_flip":
            return pictures.shifted(inputs, seed, positions), targets
        return inputs, targets

    def _decoded(self, encoded, positions, seed):
        """Photographs as training takes them, decoded in this process."""
        height, width = self.item_shape[:2]
        random = positions.tolist() if self.variation == "crop_flip" else None
        return _decode(encoded, seed, random, (height, width))

    @functools.cached_property
    def _take(self):
        """A function that gives (inputs, targets) of training items in memory by their numbers."""
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
        """(record, position) of the share of one process in an epoch.

        Args:
            read: (path, first, end) -> what is given of these records of a shard.
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
        """How many batches are begun before they are asked for, where that is not done at once."""
        return BATCHES_AHEAD if self.prefetch is None else self.prefetch

    def _in_threads(self, stream, seed):
        """Batches of arrays in order; threads begin some of them before they are asked for."""
        begun: collections.deque[Future] = collections.deque()
        with ThreadPoolExecutor(self.workers or 1) as threads:
            for what, positions in stream:
                begun.append(threads.submit(self._made, what, positions, seed))
                if len(begun) > self._ahead:
                    yield begun.popleft().result()

    def _in_processes(self, work: Iterator[tuple[tuple, np.ndarray]]) -> Iterator[Batch]:
        """Decoded batches in order; the workers begin some of them before they are asked for."""
        begun: collections.deque[tuple[list[Future], np.ndarray]] = collections.deque()
        while True:
            for job, targets in itertools.islice(work, 1 + self._ahead - len(begun)):
                begun.append((self._begin(*job), targets))
            if not begun:
                return
            parts, targets = begun.popleft()
            yield np.concatenate([part.result() for part in parts]), targets

    def _begin(self, encoded, seed, positions):
        """Start decoding images, a part in each worker."""
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
    """In a worker: random crops of images, or central ones where there are no positions."""
    if positions is None:
        return pictures.centred(encoded, size)
    return pictures.cropped(encoded, seed, positions, size)


def initialize_worker(parent: int) -> None:
    """In a worker: ignore signals, which the trainer handles, and end when the trainer ends."""
    ignore_signals()
    orphans.end_with_parent(parent, signal.SIGKILL)


def ignore_signals() -> None:
    """Ignore those that a launcher sends to all processes of a run, for the trainer to handle."""
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def positions_of(step: int, batch: int, rank: int, size: int) -> np.ndarray:
    """Where in the endless order the items of a process's step are that are kept in memory."""
    return step * batch * size + rank + size * np.arange(batch, dtype=np.int64)


def _batched(items: Iterator[Any], count: int) -> Iterator[list[Any]]:
    while some := list(itertools.islice(items, count)):
        yield some


def _joined(parts):
    """Lists or arrays one after another."""
    if isinstance(parts[0], list):
        return list(itertools.chain.from_iterable(parts))
    return np.concatenate(parts)
