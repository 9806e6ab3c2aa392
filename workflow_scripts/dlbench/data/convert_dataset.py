"""From a dataset's source files to TFRecord shards, their manifest, and its verification.

- Records are shuffled with a fixed seed and cut into shards of equal length, so
  that any process can write any shard: the bytes are the same whatever the
  number of workers.
- A shard takes its name when it is whole; what is known of it is kept beside it
  until the manifest is written. A conversion that was killed goes on from there.
- Source files are read in place (dlbench/data/archives.py).
"""

import concurrent.futures
import json
import math
import multiprocessing
import os
import random
import sys
import time
from array import array
from hashlib import sha256 as new_sha256
from importlib import metadata
from pathlib import Path

from dlbench import Error
from dlbench.common import plugins
from dlbench.common.files import sha256, write_json, written_whole
from dlbench.data import pictures
from dlbench.data.archives import ArchiveError
from dlbench.data.tfrecord import framed_example

MANIFEST_VERSION = 2
SEED = 1
SHOW_EVERY_S = 5.0


class DataError(Error):
    """Data is not what it should be; the message has file, expected and found."""


def convert(name, source, output, *, code_sha256="", workers=None, check="header"):
    """Write the TFRecord shards of dataset `name` and their manifest.

    Args:
        source: folder with the fetched files.
        output: folder for `train-00000-of-00004` and so on.
        code_sha256: digest of the converting code, kept in the manifest.
        workers: processes that write shards; by default one for each core.
        check: `none`, `header` (an encoded image is seen to be one, whole and of a size; others
            to have their size; labels to be in range) or `decode` (every encoded image is
            decoded, too).

    Raises:
        DataError: a split has not the number of records it should have, or one is not as it
            must be.
        PictureError: an image is none, or does not decode.
        ArchiveError: a source file is damaged.
    """
    dataset = plugins.load("datasets", name)
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    for left_over in output.glob(".*.part"):  # of a conversion that was killed
        left_over.unlink()
    opened = dataset.open(Path(source))
    recipe = {
        "code_sha256": code_sha256,
        "seed": SEED,
        "check": check,
        "source": _source_digests(dataset, Path(source)),
    }
    tasks, wanted = [], _wanted(dataset.READER)
    for split, expected in dataset.SPLITS.items():
        found = opened.count(split)
        if found != expected:
            raise DataError(f"{name}: expected {expected} {split} records, found {found}")
        order = array("Q", range(found))
        random.Random(f"{SEED}/{split}").shuffle(order)
        count = dataset.SHARDS[split]
        for index in range(count):
            part = order[found * index // count : found * (index + 1) // count]
            path = output / f"{split}-{index:05d}-of-{count:05d}"
            tasks.append(_Task(opened, split, part, path, recipe, dataset.READER, wanted))
    shards = _write_all(name, tasks, workers or len(os.sched_getaffinity(0)))
    features = sorted(opened.features("train", 0))
    manifest = {
        "manifest_version": MANIFEST_VERSION,
        "dataset": name,
        "title": dataset.TITLE,
        "licence": dataset.LICENCE,
        "citation": dataset.CITATION,
        "kind": dataset.KIND,
        "reader": dataset.READER,
        "features": features,
        **recipe,
        "versions": _versions(),
        "splits": {
            split: {
                "records": dataset.SPLITS[split],
                "shards": [shards[task.path] for task in tasks if task.split == split],
            }
            for split in dataset.SPLITS
        },
    }
    write_json(output / "manifest.json", manifest)
    for task in tasks:
        task.note.unlink(missing_ok=True)


class _Task:
    """One shard to be written."""

    def __init__(self, opened, split, part, path, recipe, reader, wanted):
        self.opened, self.split, self.part = opened, split, part
        self.path, self.recipe, self.check = path, recipe, recipe["check"]
        self.reader, self.wanted = reader, wanted
        self.note = path.with_name(f".{path.name}.json")

    def finished(self):
        """What an earlier conversion noted of this shard, where it stands, else None."""
        try:
            noted = json.loads(self.note.read_text(encoding="utf-8"))
            stands = noted["recipe"] == json.loads(json.dumps(self.recipe))
            if stands and self.path.stat().st_size == noted["shard"]["bytes"]:
                return noted["shard"]
        except (OSError, ValueError, KeyError):
            pass
        return None

    def write(self):
        total, size_bytes = new_sha256(), 0
        # Not forced to disk: after a power cut the manifest's digests tell.
        with written_whole(self.path, force=False) as part, open(part, "wb") as file:
            for index in self.part:
                features = self.opened.features(self.split, index)
                where = self.opened.place(self.split, index)
                _check(features, self.reader, self.wanted, self.check, where)
                for piece in framed_example(features):
                    file.write(piece)
                    total.update(piece)
                    size_bytes += len(piece)
        shard = {
            "file": self.path.name,
            "records": len(self.part),
            "bytes": size_bytes,
            "sha256": total.hexdigest(),
        }
        write_json(self.note, {"recipe": self.recipe, "shard": shard})
        return shard


def _write_all(name, tasks, workers):
    """Write the shards that are not there yet. Returns what is known of each, by its path."""
    shards = {task.path: shard for task in tasks if (shard := task.finished())}
    todo = [task for task in tasks if task.path not in shards]
    progress = _Progress(name, sum(len(task.part) for task in todo))
    if workers == 1 or len(todo) < 2:
        for task in todo:
            shards[task.path] = task.write()
            progress.add(task)
        return shards
    # Forked, so that all workers share what the source holds in memory.
    context = multiprocessing.get_context("fork")
    global _todo
    _todo = todo
    with concurrent.futures.ProcessPoolExecutor(min(workers, len(todo)), context) as pool:
        writing = {pool.submit(_write_number, number): todo[number] for number in range(len(todo))}
        try:
            for done in concurrent.futures.as_completed(writing):
                task = writing[done]
                shards[task.path] = done.result()
                progress.add(task)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return shards


_todo = []  # of this conversion; workers find it by fork


def _write_number(number):
    return _todo[number].write()


class _Progress:
    """A line on stderr now and then: records done, rate, time left."""

    def __init__(self, name, total):
        self._name, self._total, self._done = name, total, 0
        self._started_s = self._shown_s = time.monotonic()

    def add(self, task):
        self._done += len(task.part)
        now = time.monotonic()
        if now - self._shown_s < SHOW_EVERY_S and self._done < self._total:
            return
        self._shown_s = now
        rate = self._done / max(now - self._started_s, 1e-9)
        left_s = (self._total - self._done) / rate
        print(
            f"{self._name}: {self._done}/{self._total} records, {rate:.0f}/s, {left_s:.0f} s left",
            file=sys.stderr,
            flush=True,
        )


def _wanted(reader):
    """What each record of a dataset must have, by what reads it: (bytes by feature, labels)."""
    import numpy as np

    size_bytes = {}
    if reader["encoding"] == "raw":
        item_bytes = np.dtype(reader.get("dtype", "uint8")).itemsize
        size_bytes["image/encoded"] = item_bytes * math.prod(reader["shape"])
    if "mask" in reader:
        size_bytes["image/mask"] = math.prod(reader["mask"])
    first = reader.get("first_label")
    return size_bytes, None if first is None else range(first, first + reader["classes"])


def _check(features, reader, wanted, check, where):
    """See that a record is what the trainer will read.

    Raises:
        DataError, PictureError: it is not.
    """
    if check == "none":
        return
    where = f"{features['image/filename']} ({where})" if "image/filename" in features else where
    size_bytes, labels = wanted
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
    for name, expected in size_bytes.items():
        if len(features[name]) != expected:
            raise DataError(
                f"{where}: expected {expected} bytes of {name}, found {len(features[name])}"
            )
    if label and features["image/class/label"] not in labels:
        raise DataError(
            f"{where}: expected a label from {labels[0]} to {labels[-1]}, found "
            f"{features['image/class/label']}"
        )
    if encoded:
        pictures.check(features["image/encoded"], check, where)


def _source_digests(dataset, folder):
    """Bytes and SHA-256 of the source files: published, or as found where they are not."""
    digests = {}
    for name, expected in dataset.FILES.items():
        path = folder / name
        if not path.is_file():
            raise ArchiveError(f"{path}: missing; fetch_dataset.py brings it")
        digests[name] = {
            "bytes": path.stat().st_size,
            "sha256": expected["sha256"] or sha256(path),
        }
    return digests


def _versions():
    """Of what encodes images anew."""
    return {"pillow": metadata.version("pillow")}
