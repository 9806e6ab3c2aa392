"""Convert a dataset's source files to TFRecord shards and write their manifest.

- Records are shuffled with a fixed seed and divided into shards of equal length, so that any
  process can write any shard. The bytes do not depend on the number of workers.
- Each shard is written atomically. A note beside it keeps its size and digest until the manifest
  is written, so that a conversion that was killed continues after its last complete shard.
- Source files are read in place (dlbench/data/archives.py).
"""

import concurrent.futures
import contextlib
import json
import math
import multiprocessing
import os
import random
import signal
from array import array
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256 as new_sha256
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from dlbench import Error
from dlbench.common import orphans, plugins
from dlbench.common.files import atomic_write, sha256, write_json
from dlbench.common.terminal import Progress
from dlbench.common.tfrecord import framed_example
from dlbench.data import pictures
from dlbench.data.archives import ArchiveError
from dlbench.data.datasets import Source
from dlbench.trainer.reading import manifest

MANIFEST_VERSION = 2
SEED = 1


class DataError(Error):
    """Records are not as the dataset's file declares them; the message says which."""


def convert(
    name: str,
    source: Path | str,
    output: Path | str,
    *,
    code_sha256: str = "",
    workers: int | None = None,
    check: str = "header",
) -> None:
    """Write the TFRecord shards of dataset `name` and their manifest.

    Args:
        source: folder with the fetched files.
        output: folder for `train-00000-of-00004` and so on.
        code_sha256: digest of the converting code, kept in the manifest.
        workers: number of processes; default: one for each core.
        check: `none`; `header`: an encoded image is a complete JPEG and has a size, a raw image
            has the right number of bytes and finite values, a label is in range; `decode`: every
            encoded image is decoded, too.

    Raises:
        DataError: a split does not have the declared number of records, or a record fails its
            check.
        PictureError: an image is not a JPEG or PNG, or does not decode.
        ArchiveError: a source file is damaged.
    """
    dataset = plugins.load("datasets", name)
    recipe = {
        "code_sha256": code_sha256,
        "seed": SEED,
        "check": check,
        "source": _source_digests(dataset, Path(source)),
    }
    write(name, dataset, dataset.open(Path(source)), Path(output), recipe, workers)


def write(
    name: str,
    dataset: Any,
    source: Source,
    output: Path,
    recipe: dict[str, Any],
    workers: int | None = None,
    further: Mapping[str, Any] | None = None,
) -> None:
    """Write the records of a source as shards, and their manifest, as `convert` does.

    Args:
        dataset: has what a dataset's file defines, as attributes.
        recipe: what the shards are made from and how; an unfinished conversion by another recipe
            is started again. `check` is as in `convert`.
        further: entries of the manifest that describe the dataset.
    """
    output.mkdir(parents=True, exist_ok=True)
    for part in output.glob(".*.part"):  # of a conversion that was killed
        part.unlink()
    tasks = _shard_tasks(name, dataset, source, output, recipe)
    shards = _write_all(name, tasks, workers or len(os.sched_getaffinity(0)))
    content = {
        **manifest_head(name, dataset),
        "reader": dataset.READER,
        "features": sorted(source.features("train", 0)),
        **recipe,
        **(further or {}),
        "versions": {"pillow": metadata.version("pillow")},  # it encodes pictures again
        "splits": {
            split: {
                "records": source.count(split),
                "shards": [shards[task.path] for task in tasks if task.split == split],
            }
            for split in dataset.SPLITS
        },
    }
    manifest.write(output / manifest.NAME, content)
    for task in tasks:
        task.note.unlink(missing_ok=True)


def manifest_head(name: str, dataset: Any) -> dict[str, Any]:
    """The first entries of a manifest: the dataset's name and description."""
    return {
        "manifest_version": MANIFEST_VERSION,
        "dataset": name,
        "title": dataset.TITLE,
        "licence": dataset.LICENCE,
        "citation": dataset.CITATION,
        "kind": dataset.KIND,
    }


class _ShardTask(NamedTuple):
    """One shard to be written, with the records of its source in the shard's order."""

    source: Source
    split: str
    indices: array
    path: Path
    recipe: dict[str, Any]  # of the conversion; a shard with another one is written again
    reader: dict[str, Any]
    expected: "_Expected"

    @property
    def note(self):
        return self.path.with_name(f".{self.path.name}.json")

    def finished(self):
        """The manifest's entry if an earlier conversion wrote this shard, else None."""
        try:
            noted = json.loads(self.note.read_text(encoding="utf-8"))
            same_recipe = noted["recipe"] == json.loads(json.dumps(self.recipe))
            if same_recipe and self.path.stat().st_size == noted["shard"]["bytes"]:
                return noted["shard"]
        except (OSError, ValueError, KeyError):
            pass
        return None

    def write(self):
        """Write the shard and its note. Returns the manifest's entry."""
        digest, size_bytes = new_sha256(), 0
        # No fsync: after a power cut the manifest's digests show what is damaged.
        with atomic_write(self.path, force=False) as part, open(part, "wb") as file:
            for index in self.indices:
                features = self.source.features(self.split, index)
                where = self.source.location(self.split, index)
                _check_record(features, self.reader, self.expected, self.recipe["check"], where)
                for piece in framed_example(features):
                    file.write(piece)
                    digest.update(piece)
                    size_bytes += len(piece)
        shard = {
            "file": self.path.name,
            "records": len(self.indices),
            "bytes": size_bytes,
            "sha256": digest.hexdigest(),
        }
        write_json(self.note, {"recipe": self.recipe, "shard": shard})
        return shard


def _shard_tasks(name, dataset, records_source, output, recipe):
    """A task for each shard of each split, with the records to write."""
    tasks, expected = [], _expected(dataset.READER)
    for split, declared in dataset.SPLITS.items():
        records = records_source.count(split)
        if declared not in (None, records):
            raise DataError(
                f"{name}: expected {declared} {split} records, found {records}: SPLITS in "
                f"{dataset.__file__} says how many there are (None: as many as the source has)"
            )
        order = array("Q", range(records))
        random.Random(f"{SEED}/{split}").shuffle(order)
        count = dataset.SHARDS[split]
        for number in range(count):
            indices = order[records * number // count : records * (number + 1) // count]
            path = output / f"{split}-{number:05d}-of-{count:05d}"
            tasks.append(
                _ShardTask(records_source, split, indices, path, recipe, dataset.READER, expected)
            )
    return tasks


def _write_all(name, tasks, workers):
    """Write the shards that no earlier conversion finished. Returns manifest entries by path."""
    shards = {task.path: shard for task in tasks if (shard := task.finished())}
    todo = [task for task in tasks if task.path not in shards]
    progress = Progress(f"{name}: writing records", sum(len(task.indices) for task in todo))
    global _todo
    _todo = todo
    with forked(workers, len(todo)) as mapped:
        for task, shard in zip(todo, mapped(_write_number, range(len(todo))), strict=True):
            shards[task.path] = shard
            progress.add(len(task.indices))
    return shards


@contextlib.contextmanager
def forked(workers: int, pieces: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """A `map` over forked processes, which share the memory of this one; of one piece the usual."""
    if workers == 1 or pieces < 2:
        yield map
        return
    with concurrent.futures.ProcessPoolExecutor(
        min(workers, pieces),
        multiprocessing.get_context("fork"),
        initializer=orphans.end_with_parent,
        initargs=(os.getpid(), signal.SIGKILL),
    ) as pool:
        try:
            yield pool.map
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


_todo: list[_ShardTask] = []  # the tasks of this conversion, inherited by forked workers


def _write_number(number):
    return _todo[number].write()


class _Expected(NamedTuple):
    """What each record must have: the sizes of its features, and the range of its label, if any."""

    size_bytes: dict[str, int]
    labels: range | None
    floats: str | None  # the dtype of values that must be finite


def _expected(reader):
    """What each record must have so that the trainer can read it as READER describes."""
    import numpy as np

    size_bytes, floats = {}, None
    if reader["encoding"] == "raw":
        dtype = np.dtype(reader.get("dtype", "uint8"))
        size_bytes["image/encoded"] = dtype.itemsize * math.prod(reader["shape"])
        floats = dtype.str if np.issubdtype(dtype, np.floating) else None
    if "mask" in reader:
        size_bytes["image/mask"] = math.prod(reader["mask"])
    first = reader.get("first_label")
    labels = None if first is None else range(first, first + reader["classes"])
    return _Expected(size_bytes, labels, floats)


def _check_record(features, reader, expected, check, where):
    """Check that the trainer can read a record. Raises DataError, PictureError: it cannot."""
    if check == "none":
        return
    where = f"{features['image/filename']} ({where})" if "image/filename" in features else where
    size_bytes, labels, floats = expected
    encoded = {"image/encoded"} if reader["encoding"] == "jpeg" else set()
    label = set() if labels is None else {"image/class/label"}
    if missing := (size_bytes.keys() | encoded | label) - features.keys():
        raise DataError(f"{where}: the record lacks {', '.join(sorted(missing))}")
    kinds = dict.fromkeys(size_bytes.keys() | encoded, bytes) | dict.fromkeys(label, int)
    for name, kind in kinds.items():
        if type(features[name]) is not kind:
            raise DataError(
                f"{where}: expected {kind.__name__} as {name}, found "
                f"{type(features[name]).__name__}"
            )
    for name, size in size_bytes.items():
        if len(features[name]) != size:
            raise DataError(
                f"{where}: expected {size} bytes of {name}, found {len(features[name])}"
            )
    if floats:
        import numpy as np

        finite = np.isfinite(np.frombuffer(features["image/encoded"], floats))
        if not finite.all():
            raise DataError(
                f"{where}: expected finite values, found {np.sum(~finite)} of {finite.size} that "
                "are not (NaN or infinite)"
            )
    if label and features["image/class/label"] not in labels:
        raise DataError(
            f"{where}: expected a label from {labels[0]} to {labels[-1]}, found "
            f"{features['image/class/label']}"
        )
    if encoded:
        pictures.check(features["image/encoded"], check, where)


def _source_digests(dataset, folder):
    """Size and SHA-256 of the source files; an unpublished digest is computed."""
    digests = {}
    for name, published in dataset.FILES.items():
        path = folder / name
        if not path.is_file():
            raise ArchiveError(f"{path}: missing; dlbench fetch-dataset brings it")
        digests[name] = {
            "bytes": path.stat().st_size,
            "sha256": published["sha256"] or sha256(path),
        }
    return digests
