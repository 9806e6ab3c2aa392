"""Records of shards: their bytes, and their contents as NumPy arrays."""

import itertools
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dlbench import Error
from dlbench.common import tfrecord
from dlbench.trainer.reading.converted import ConvertedDataset

Arrays = tuple[Any, np.ndarray]  # (inputs, targets); inputs that are encoded are a list of bytes
FRAME_BYTES = 16  # of a record, in addition to its payload


def payloads(path: Path, first: int = 0, end: int | None = None) -> Iterator[bytes]:
    """The payloads of a shard's records from number `first` to before `end`.

    Raises:
        tfrecord.RecordError: the file is damaged, or shorter.
    """
    with open(path, "rb") as file:
        for number in range(first):  # by their lengths alone
            header = file.read(8)
            if len(header) < 8:
                raise tfrecord.CutOffError(f"{path}: expected more than {number} records: cut off")
            file.seek(struct.unpack("<Q", header)[0] + FRAME_BYTES - 8, os.SEEK_CUR)
        for number, (_, payload) in enumerate(tfrecord.payloads(file, path), first):
            if number == end:
                return
            yield payload


def places(path: Path, count: int) -> np.ndarray:
    """The offsets of the first `count` records of a shard, from their lengths alone.

    Raises:
        tfrecord.CutOffError: it has fewer.
    """
    offsets, place = np.empty(count, np.int64), 0
    with open(path, "rb", buffering=0) as file:
        for number in range(count):
            header = os.pread(file.fileno(), 8, place)
            if len(header) < 8:
                raise tfrecord.CutOffError(f"{path}: expected {count} records, found {number}")
            offsets[number] = place
            place += struct.unpack("<Q", header)[0] + FRAME_BYTES
    return offsets


def payload_at(path: Path, place: int) -> bytes:
    """The payload of the record at an offset of a shard.

    Raises:
        tfrecord.RecordError: the file is damaged there, or shorter.
    """
    with open(path, "rb") as file:
        file.seek(place)
        for _, payload in tfrecord.payloads(file, f"{path} from byte {place} on"):
            return payload
    raise tfrecord.CutOffError(f"{path}: expected a record at byte {place}: cut off")


def parsed(data: ConvertedDataset, records: Sequence[bytes]) -> Arrays:
    """Inputs and targets of serialised records; encoded images stay encoded.

    Raises:
        Error: a record lacks what the reader of the dataset names.
    """
    examples = [tfrecord.parse_example(record, data.name) for record in records]
    reader, first = data.reader, data.reader.get("first_label", 0)
    try:
        if data.encoded:
            image, label = data.keys()
            labels = [example[label][0] - first for example in examples]
            return [example[image][0] for example in examples], np.asarray(labels, np.int32)
        shape = tuple(reader["shape"])
        content = b"".join(example["image/encoded"][0] for example in examples)
        images = np.frombuffer(content, reader.get("dtype", "uint8")).reshape(-1, *shape)
        if "mask" in reader:
            masks = b"".join(example["image/mask"][0] for example in examples)
            return images, np.frombuffer(masks, np.uint8).reshape(-1, *reader["mask"])
        labels = [example["image/class/label"][0] - first for example in examples]
        return images, np.asarray(labels, np.int32)
    except (KeyError, IndexError, ValueError) as error:
        raise Error(
            f"{data.name}: its records are not as manifest.json says ({error!r}): convert the "
            "dataset again"
        ) from error


def interleaved(sources: Iterable[Iterator[Any]], at_once: int) -> Iterator[Any]:
    """One item of each source in turn, with `at_once` sources open.

    An exhausted source yields nothing in its turn, and the next source replaces it, as in
    TensorFlow's interleave.
    """
    waiting = iter(sources)
    slots: list[Iterator[Any] | None] = list(itertools.islice(waiting, at_once))
    while any(slots):
        for place, source in enumerate(slots):
            if source is None:
                continue
            try:
                yield next(source)
            except StopIteration:
                slots[place] = next(waiting, None)


def shuffled(items: Iterable[Any], window: int, numbers: Iterator[int]) -> Iterator[Any]:
    """Items in random order: each is drawn from a buffer of `window` items and replaced there."""
    coming, first = iter(items), 0
    buffer = list(itertools.islice(coming, window))
    count = len(buffer)
    while count:
        place = (first + next(numbers) % count) % len(buffer)
        yield buffer[place]
        buffer[place] = buffer[first]
        try:
            buffer[first] = next(coming)
        except StopIteration:
            count -= 1
        first = (first + 1) % len(buffer)
