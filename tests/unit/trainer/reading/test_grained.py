"""grained: batches by their numbers, each made alone, as Grain's workers make them.

Grain itself is in tests/trainer/test_reading.py and tests/frameworks.
"""

import itertools
import json
import pickle
import sys

import pytest

from dlbench import Error
from dlbench.common import tfrecord
from dlbench.trainer.reading import records, text
from dlbench.trainer.reading.grained import GrainReader
from dlbench.trainer.reading.stored import DatasetReader

RECORDS = (17, 1, 30, 9, 25)  # of each shard
TOKENS = 16


def converted(folder, reader, features, kind="image", counts=RECORDS):
    """A converted dataset; `features` of a number gives those of a record."""
    folder.mkdir()
    numbers, shards = itertools.count(), []
    for shard, count in enumerate(counts):
        path = folder / f"train-{shard:05d}-of-{len(counts):05d}"
        made = [tfrecord.record(tfrecord.example(features(next(numbers)))) for _ in range(count)]
        path.write_bytes(b"".join(made))
        shards.append({"file": path.name, "records": count, "bytes": path.stat().st_size})
    splits = {"train": {"records": sum(counts), "shards": shards}}
    manifest = {"dataset": "made", "kind": kind, "reader": reader, "splits": splits}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture
def images(tmp_path):
    """Images of 2 x 2 pixels whose values and labels are their numbers; some are moved."""
    reader = {"encoding": "raw", "shape": [2, 2, 1], "classes": 82, "first_label": 0}
    reader["augmentation"] = "shift_flip"
    return converted(
        tmp_path / "images",
        reader,
        lambda number: {"image/encoded": bytes([number] * 4), "image/class/label": number},
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("cache", ["memory", "none"])
@pytest.mark.parametrize(
    ("rank", "size", "first_step"), [(0, 1, 0), (0, 3, 0), (2, 3, 5), (0, 1, 29)]
)
@pytest.mark.parametrize("batch", [8, 100])  # more than an epoch has, too
def test_a_batch_by_its_number_is_the_one_that_our_own_reader_comes_to(
    images, cache, rank, size, first_step, batch
):
    order = (batch, 3, rank, size, first_step)
    batches = DatasetReader(images, cache=cache).training_batches(*order)
    expected = list(itertools.islice(batches, 24))
    mine = pickle.loads(pickle.dumps(GrainReader(images, cache=cache)))  # as workers get it
    for number in (0, 1, 23, 5, 22, 6):
        found = mine.batch_at(number, order)
        assert [part.tolist() for part in found] == [part.tolist() for part in expected[number]]


def test_windows_of_a_text_and_their_masks_are_the_same(tmp_path):
    tokens = bytes(range(250)) * 2
    folder = converted(
        tmp_path / "text",
        {"encoding": "stream", "dtype": "uint8", "classes": 250},
        lambda number: {"number": number, "tokens": tokens[number * 50 : number * 50 + 50]},
        kind="text",
        counts=(4, 6),
    )
    order = (4, 1, 0, 1, 2)
    ours, mine = (kind(folder, tokens=TOKENS, text=text) for kind in (DatasetReader, GrainReader))
    ours.mask = mine.mask = 250
    expected = list(itertools.islice(ours.training_batches(*order), 9))
    found = pickle.loads(pickle.dumps(mine)).batch_at(8, order)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected[8]]


def test_only_the_records_of_a_batch_are_read(images, monkeypatch):
    read, real = [], records.payload_at
    monkeypatch.setattr(records, "payload_at", lambda *words: read.append(words) or real(*words))
    data = GrainReader(images, cache="none")
    data.batch_at(3, (8, 1, 0, 1, 0))
    assert len(read) == 8


def read_epochs(folder):
    data = GrainReader(folder, cache="none")
    for number in range(11):
        data.batch_at(number, (8, 1, 0, 1, 0))


def test_a_damaged_record_is_named_with_its_shard_and_place(images):
    path = images / "train-00002-of-00005"
    content = bytearray(path.read_bytes())
    place = int(records.places(path, 30)[12])
    content[place + 20] ^= 1
    path.write_bytes(content)
    with pytest.raises(tfrecord.RecordError, match=f"00002-of-00005 from byte {place} on: .*sum"):
        read_epochs(images)


def test_a_shard_that_is_cut_off_is_named(images):
    path = images / "train-00004-of-00005"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(tfrecord.CutOffError, match="train-00004-of-00005: expected 25 records"):
        read_epochs(images)


def test_without_grain_it_is_said_what_installs_it(images, monkeypatch):
    monkeypatch.setitem(sys.modules, "grain", None)
    with pytest.raises(Error, match=r"input grain needs the package grain.*--extra grain"):
        next(GrainReader(images).training_batches(8, 1))
