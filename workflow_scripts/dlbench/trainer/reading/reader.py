"""How JAX and PyTorch read the items of a run: by our own reader, a DataLoader or Grain.

- NumPy draws the order of an epoch from the seed. Every record is read once an epoch, over all
  processes together; a batch may span two epochs. The batch of a step follows from seed, process
  and step alone, whatever prepares it and wherever a run resumes.
- What is kept in memory is shuffled as a whole, and process r of n takes the places r, r + n,
  r + 2n ... of the order: a global batch is the same however many processes share it. Of larger
  data the shards are shuffled, then their records within windows, and each process has its own
  part of the order.
- Our own reader decodes photographs of the next batches in worker processes, and prepares other
  batches in the trainer's process, or in threads if a run sets input_workers or prefetch. Workers
  of Grain and of a DataLoader (trainer/pytorch/loading.py) prepare whole batches, and read the
  records of these only; if the data are kept in memory, each worker has a copy.
"""

import bisect
import collections
import contextlib
import functools
import itertools
import math
import multiprocessing
import os
import signal
import struct
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from dlbench import Error
from dlbench.common import tfrecord
from dlbench.machine import limits
from dlbench.trainer.reading import text
from dlbench.trainer.reading.converted import (
    CENTRAL_SHARE,
    CROP_AREA,
    CROP_ATTEMPTS,
    CROP_RATIO,
    SHIFT_PIXELS,
    SHUFFLED_RECORDS,
    Batch,
    ConvertedDataset,
    InputSettings,
    Source,
)
from dlbench.trainer.reading.inputs import COPIED

BATCHES_AHEAD = 2
RECORDS_AT_ONCE = 1024
STEPS = 1 << 40  # more than any run has
BUFFER_BYTES = 1 << 20
FRAME_BYTES = 16  # of a record, in addition to its payload
ORDER, AUGMENTATION = 0, 1  # what random numbers are for

Arrays = tuple[Any, Any]  # (inputs, targets), the framework's own
Picture = tuple[str, bytes, int | None]  # name for messages, JPEG, seed; None: its central part
Item = TypeVar("Item")


class Order(NamedTuple):
    """Which items a process gets: `batch` in each step, of those that `size` processes share."""

    batch: int
    seed: int
    rank: int = 0
    size: int = 1


class DatasetReader(ConvertedDataset):
    """The items of a converted dataset, for one process of a run, by our own reader."""

    _memory: tuple[Any, np.ndarray] | None = None
    _processes: ProcessPoolExecutor | None = None

    def training_batches(
        self, batch: int, seed: int, rank: int = 0, size: int = 1, first_step: int = 0
    ) -> Iterator[Batch]:
        """Endless batches of `batch` items for one of `size` processes, that of a rank.

        `first_step` steps are skipped, because the run was resumed after them.
        """
        order, steps = Order(batch, seed, rank, size), itertools.count(first_step)
        if self.encoded:
            yield from self._in_processes(self._pictures(step, order) for step in steps)
        elif self.workers or self.prefetch:
            self._take(np.zeros(1, int))  # now, so that threads do not each fill the memory
            with ThreadPoolExecutor(self.workers or 1) as threads:
                started = (threads.submit(self.batch_at, step, order) for step in steps)
                for prepared in _ahead(started, self._batches_ahead):
                    yield prepared.result()
        else:
            yield from (self.batch_at(step, order) for step in steps)

    def batch_at(self, step: int, order: Order) -> Batch:
        """The batch of a step, from 0, prepared in this process alone.

        Raises Error: an item cannot be read; the message has its shard and its number there.
        """
        if self.encoded:
            pictures, targets = self._pictures(step, order)
            return decoded(pictures, self.item_shape[:2]), targets
        inputs, targets = self._take(self.numbers(step, order))
        if self.mask is not None:
            return text.masked(inputs, _random(step, order), self.mask)
        if self.augmentation == "shift_flip":
            return shifted(inputs, _random(step, order)), targets
        return inputs, targets

    def numbers(self, step: int, order: Order) -> np.ndarray:
        """The items of a step by their numbers in the training split."""
        batch, seed, rank, size = order
        total, places = self.records("train"), step * batch + np.arange(batch)
        counts: tuple[int, ...]
        if self.in_memory:
            counts, window, first, share = (total,), total, 0, total
            places = places * size + rank
        else:
            counts, window = self._stored.counts, SHUFFLED_RECORDS
            first = total * rank // size
            share = total * (rank + 1) // size - first
        epochs, places = np.divmod(places, share)
        return np.concatenate(
            [
                epoch_order(counts, window, seed, epoch)[first + places[epochs == epoch]]
                for epoch in range(epochs[0], epochs[-1] + 1)
            ]
        )

    def validation_batches(self, batch: int) -> Iterator[Batch]:
        """All held-out items once, in the order of the shards; the last batch may be smaller."""
        if self.streamed:
            yield from self.held_out_windows(batch)
            return
        held_out, parts = self._held_out, _parts(self.records("validation"), batch)
        batches = (parsed(self, list(held_out.payloads(part))) for part in parts)
        if not self.encoded:
            yield from batches
            return
        yield from self._in_processes(
            (
                [(held_out.name(n), jpeg, None) for n, jpeg in zip(part, encoded, strict=True)],
                labels,
            )
            for part, (encoded, labels) in zip(parts, batches, strict=True)
        )

    def close(self) -> None:
        """Stop the worker processes."""
        if self._processes:
            self._processes.shutdown(wait=False, cancel_futures=True)
            self._processes = None

    def __getstate__(self) -> dict[str, Any]:
        """The state for worker processes, which read the dataset themselves."""
        return vars(self) | {"_rows": {}, "_memory": None, "_processes": None}

    @functools.cached_property
    def _stored(self) -> "Records":
        return Records(self.shards("train"))

    @functools.cached_property
    def _held_out(self) -> "Records":
        return Records(self.shards("validation"))

    def _take(self, numbers):
        """(inputs, targets) of training items; photographs are a list of JPEGs."""
        if self.streamed:
            return text.windows(self.row("train"), numbers, self.item_shape[0])
        if not self.in_memory:
            return parsed(self, list(self._stored.payloads(numbers.tolist())))
        if self._memory is None:
            parts = [
                parsed(self, list(self._stored.payloads(part)))
                for part in _parts(self.records("train"), RECORDS_AT_ONCE)
            ]
            inputs, targets = zip(*parts, strict=True)
            joined = list(itertools.chain(*inputs)) if self.encoded else np.concatenate(inputs)
            self._memory = joined, np.concatenate(targets)
        inputs, targets = self._memory
        return [inputs[n] for n in numbers] if self.encoded else inputs[numbers], targets[numbers]

    def _pictures(self, step, order):
        """(photographs, labels) of a step; each photograph has a seed if it is augmented."""
        numbers = self.numbers(step, order)
        encoded, labels = self._take(numbers)
        names = map(self._stored.name, numbers.tolist())
        seeds: Iterable[int | None] = itertools.repeat(None, len(numbers))
        if self.augmentation == "crop_flip":
            seeds = _random(step, order).integers(1 << 63, size=len(numbers)).tolist()
        return list(zip(names, encoded, seeds, strict=True)), labels

    def _in_processes(self, batches: Iterable[tuple[list[Picture], np.ndarray]]) -> Iterator[Batch]:
        """Decoded batches in order; workers decode some of them ahead, each a part of a batch."""
        count = self.workers or limits.usable_threads()
        if self._processes is None:
            spawn = multiprocessing.get_context("spawn")
            self._processes = ProcessPoolExecutor(count, spawn, initializer=initialize_worker)

        def started(pictures):
            each, size = -(-len(pictures) // count), self.item_shape[:2]
            parts = (pictures[i : i + each] for i in range(0, len(pictures), each))
            return [self._processes.submit(decoded, part, size) for part in parts]

        pending = ((started(pictures), labels) for pictures, labels in batches)
        for parts, labels in _ahead(pending, self._batches_ahead):
            yield np.concatenate([part.result() for part in parts]), labels

    @property
    def _batches_ahead(self):
        return BATCHES_AHEAD if self.prefetch is None else self.prefetch


class Batches:
    """The batches of a process from a step on, by their numbers: a map-style dataset."""

    def __init__(self, data: DatasetReader, first_step: int, order: Order):
        self._data, self._first_step, self._order = data, first_step, order

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, number: int) -> Batch:
        return self._data.batch_at(self._first_step + int(number), self._order)


class GrainReader(DatasetReader):
    """The items of a converted dataset, for one process of a run, through Grain.

    Workers take batches in turn, worker w of n the batches w, w + n, w + 2n ...
    """

    def training_batches(
        self, batch: int, seed: int, rank: int = 0, size: int = 1, first_step: int = 0
    ) -> Iterator[Batch]:
        """As our own reader; `prefetch` is of each worker (1 if not given).

        Raises Error: Grain is not installed, an item cannot be read, or a worker has ended.
        """
        grain = _grain()
        source = Batches(self, first_step, Order(batch, seed, rank, size))
        workers = grain.MultiprocessingOptions(
            num_workers=self.workers or limits.usable_threads(),
            per_worker_buffer_size=self.prefetch or 1,
        )
        # A worker prepares one batch after the other; its buffer limits how far it is ahead.
        one_by_one = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
        batches = iter(
            grain.MapDataset.source(source)
            .to_iter_dataset(one_by_one)
            .mp_prefetch(workers, initialize_worker)
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


def initialize_worker(*_: int) -> None:
    """Runs first in a worker: ignore the signals that a launcher sends to all processes, which the
    trainer handles, and end with the trainer.

    The kernel (orphans.end_with_parent) would report the end of the thread that started the worker,
    which may end earlier.
    """
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    trainer = multiprocessing.parent_process()

    def end_with_trainer():
        trainer.join()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=end_with_trainer, daemon=True).start()


@functools.lru_cache(maxsize=2)  # a batch may span two epochs
def epoch_order(counts: tuple[int, ...], window: int, seed: int, epoch: int) -> np.ndarray:
    """The numbers of all records in the order of an epoch.

    Shards of these `counts` of records are shuffled as a whole, then records within windows.

    >>> sorted(epoch_order((3, 4), 2, seed=1, epoch=0).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """
    random = np.random.default_rng([seed, ORDER, epoch])
    shards = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])
    numbers = np.concatenate([shards[place] for place in random.permutation(len(shards))])
    for start in range(0, len(numbers), window):
        random.shuffle(numbers[start : start + window])
    return numbers


def _random(step: int, order: Order) -> np.random.Generator:
    return np.random.default_rng([order.seed, AUGMENTATION, order.rank, step])


def _parts(count: int, size: int) -> list[range]:
    return [range(i, min(i + size, count)) for i in range(0, count, size)]


def _ahead(items: Iterator[Item], count: int) -> Iterator[Item]:
    """The items of an iterator, which is `count` items ahead of what was taken from here."""
    waiting = collections.deque(itertools.islice(items, count))
    for item in items:
        waiting.append(item)
        yield waiting.popleft()
    yield from waiting


def parsed(data: ConvertedDataset, records: Sequence[bytes]) -> Batch:
    """Inputs and targets of serialised records; encoded images stay a list of bytes.

    Raises Error: a record lacks what the reader of the dataset names.
    """
    examples = [tfrecord.parse_example(record, data.name) for record in records]
    reader, first = data.reader, data.reader.get("first_label", 0)
    image, label = data.keys()
    try:
        if "mask" in reader:
            masks = b"".join(example["image/mask"][0] for example in examples)
            targets = np.frombuffer(masks, np.uint8).reshape(-1, *reader["mask"])
        else:
            targets = np.asarray([example[label][0] - first for example in examples], np.int32)
        images = [example[image][0] for example in examples]
        if data.encoded:
            return images, targets
        pixels = np.frombuffer(b"".join(images), reader.get("dtype", "uint8"))
        return pixels.reshape(-1, *reader["shape"]), targets
    except (KeyError, IndexError, ValueError) as error:
        raise Error(
            f"{data.name}: its records are not as manifest.json says ({error!r}): convert the "
            "dataset again"
        ) from error


class Records:
    """The records of a split by their numbers over all shards.

    `shards`: (path, records) of each.
    """

    def __init__(self, shards: list[tuple[Path, int]]):
        self._paths = [path for path, _ in shards]
        self.counts = tuple(count for _, count in shards)
        self._firsts = [0, *itertools.accumulate(self.counts)]
        self._offsets: dict[int, np.ndarray] = {}

    def name(self, number: int) -> str:
        """Where a record is, for messages."""
        shard = self._shard(number)
        return f"{self._paths[shard]}: record {number - self._firsts[shard]}"

    def payloads(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Some records; the shards that have them are open meanwhile.

        Raises tfrecord.RecordError: a file is damaged there, or shorter.
        """
        with contextlib.ExitStack() as opened:
            files: dict[int, Any] = {}
            for number in numbers:
                shard = self._shard(number)
                path, offsets = self._paths[shard], self._offsets_of(shard)
                if shard not in files:
                    files[shard] = opened.enter_context(open(path, "rb"))
                place = int(offsets[number - self._firsts[shard]])
                files[shard].seek(place)
                found = tfrecord.payloads(files[shard], f"{path} from byte {place} on")
                if (record := next(found, None)) is None:
                    raise tfrecord.CutOffError(f"{path}: expected a record at byte {place}")
                yield record[1]

    def _shard(self, number):
        return bisect.bisect_right(self._firsts, number) - 1

    def _offsets_of(self, shard):
        """The offsets of a shard's records, from their lengths."""
        if shard not in self._offsets:
            path, count, place = self._paths[shard], self.counts[shard], 0
            offsets = np.empty(count, np.int64)
            # All of it, in large blocks: then the page cache has it, of which records are read.
            with open(path, "rb", buffering=BUFFER_BYTES) as file:
                for number in range(count):
                    file.seek(place)
                    header = file.read(8)
                    if len(header) < 8:
                        raise tfrecord.CutOffError(
                            f"{path}: expected {count} records, found {number}"
                        )
                    offsets[number] = place
                    place += struct.unpack("<Q", header)[0] + FRAME_BYTES
            self._offsets[shard] = offsets
        return self._offsets[shard]


def shifted(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Small images (items, height, width, channels), each moved by up to SHIFT_PIXELS and mirrored
    at random.
    """
    count, height, width, _ = images.shape
    pad = (SHIFT_PIXELS, SHIFT_PIXELS)
    padded = np.pad(images, ((0, 0), pad, pad, (0, 0)))
    moved = np.empty_like(images)
    moves = random.integers(2 * SHIFT_PIXELS + 1, size=(count, 2))
    mirrored = random.integers(2, size=(count,))
    # Image by image: indices for all pixels at once take ten times as long.
    for image, source, (row, column), mirror in zip(moved, padded, moves, mirrored, strict=True):
        window = source[row : row + height, column : column + width]
        image[:] = window[:, ::-1] if mirror else window
    return moved


def decoded(pictures: Sequence[Picture], size: tuple[int, ...]) -> np.ndarray:
    """A random part of each photograph, mirrored at random, or its central part.

    `size`: height and width to which the parts are brought. Returns (items, height, width, 3),
    uint8. Raises Error: one is no JPEG that libjpeg-turbo decodes, or simplejpeg is not installed.
    """
    simplejpeg, images = _simplejpeg(), []
    for name, content, seed in pictures:
        random = None if seed is None else np.random.default_rng(seed)
        try:
            height, width = simplejpeg.decode_jpeg_header(content)[:2]
            # The fast transform is TensorFlow's default; upsampling as in tf_cnn_benchmarks.
            image = simplejpeg.decode_jpeg(content, fastdct=True, fastupsample=random is not None)
        except ValueError as error:
            raise Error(f"{name}: the image is no JPEG that can be decoded ({error})") from error
        if random is None:
            images.append(_resized(_centre(image, size), size))
            continue
        top, left, rows, columns = crop_window(height, width, random)
        image = _resized(image[top : top + rows, left : left + columns], size)
        images.append(image[:, ::-1] if random.integers(2) else image)
    return np.stack(images)


def crop_window(height: int, width: int, random: np.random.Generator) -> tuple[int, int, int, int]:
    """(top, left, height, width) of a random part of an image; all of it if none was found.

    Area and ratio are drawn as by torchvision's RandomResizedCrop: the area uniformly of CROP_AREA,
    the logarithm of the ratio of width to height uniformly of CROP_RATIO.
    """
    for _ in range(CROP_ATTEMPTS):
        area = height * width * random.uniform(*CROP_AREA)
        ratio = math.exp(random.uniform(math.log(CROP_RATIO[0]), math.log(CROP_RATIO[1])))
        rows, columns = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < rows <= height and 0 < columns <= width:
            top, left = random.integers((height - rows + 1, width - columns + 1)).tolist()
            return top, left, rows, columns
    return 0, 0, height, width


def _centre(image, size):
    """The central part of an image, in the proportions of `size`."""
    shape, size = np.asarray(image.shape[:2], np.float32), np.asarray(size, np.float32)
    extent = np.round(np.float32(CENTRAL_SHARE) * np.min(shape / size) * size).astype(int)
    top, left = (shape.astype(int) - extent) // 2
    return image[top : top + extent[0], left : left + extent[1]]


def _resized(image, size):
    """Bilinear between the centres of pixels, without smoothing; uint8."""
    for axis, new in enumerate(size):
        old = image.shape[axis]
        places = (np.arange(new, dtype=np.float32) + 0.5) * np.float32(old / new) - 0.5
        below = np.floor(places)
        share = (places - below).astype(np.float32).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        first = np.take(image, np.maximum(below, 0).astype(int), axis).astype(np.float32)
        second = np.take(image, np.minimum(np.ceil(places), old - 1).astype(int), axis)
        image = first + (second - first) * share
    return (image + 0.5).astype(np.uint8)


def _simplejpeg():
    try:
        import simplejpeg
    except ModuleNotFoundError as error:
        raise Error(
            "datasets of JPEGs need the package simplejpeg, which is not installed for "
            f"{sys.executable}. The environments envs/pytorch and envs/jax have it "
            "(`dlbench environment` installs them); into a Python of your own: "
            f"{sys.executable} -m pip install simplejpeg"
        ) from error
    return simplejpeg


class Strategy(Protocol):
    """What the items of a process, and the engine that takes them, depend on of its strategy."""

    gpu_count: int
    rank: int
    size: int
    devices_per_process: int
    ranks_per_batch: int

    def to_devices(self, values: np.ndarray) -> Any:
        """Put the items of all devices of this process on them, as the framework's array."""

    def prefetch_to_devices(self, batches: Iterator[Batch]) -> Iterator[Arrays]:
        """Copy each batch to the devices of this process while the step before it computes.

        The caller asks for a batch only once the step that uses the batch before is launched.
        """


class Items(Source):
    """The batches of a run's steps for frameworks whose step is called with arrays.

    The `strategy` of the settings is a Strategy, and their `scale` takes NumPy arrays and those of
    the framework. What it returns for NumPy arrays must be accepted by `np.asarray`.
    """

    def __init__(
        self,
        settings: InputSettings,
        data_folder: str | None,
        reader: type[DatasetReader] = DatasetReader,
    ):
        super().__init__(reader, settings, data_folder)
        self._strategy: Strategy = settings.strategy
        self._ranks = self._strategy.ranks_per_batch
        devices = self._strategy.devices_per_process * self._ranks
        self._batch = settings.spec.batch_per_device * devices
        if self.data is None:
            items = self.synthetic(self._batch)
            scaled = items[0] if self.like else np.asarray(settings.scale(items[0]))
            batch = np.ascontiguousarray(scaled), np.ascontiguousarray(items[1])
            if settings.spec.probe == COPIED:
                self._same = self._strategy.prefetch_to_devices(itertools.repeat(batch))
            else:
                on_devices = tuple(map(self._strategy.to_devices, batch))
                self._same = itertools.repeat(on_devices)

    def batches(self, first_step: int) -> Iterator[Arrays]:
        """The batches of this process after so many steps, on its devices; they have no end."""
        if self.data is None:
            return self._same
        return self._strategy.prefetch_to_devices(self.on_host(first_step))

    def on_host(self, first_step: int) -> Iterator[Batch]:
        """The same in the memory of the host; not for synthetic items."""
        rank, size = (n // self._ranks for n in (self._strategy.rank, self._strategy.size))
        return self.data.training_batches(self._batch, self.seed, rank, size, first_step)

    def held_out(self, batch: int) -> Iterator[Batch]:
        """All held-out items once, as NumPy arrays; none of synthetic items."""
        return iter(()) if self.data is None else self.data.validation_batches(batch)
