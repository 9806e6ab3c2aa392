"""reader: the order of items, batches by their numbers, and those that a strategy puts on devices.

Grain and photographs are in tests/trainer/test_reading.py and tests/frameworks.
"""

import itertools
import json
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dlbench import Error
from dlbench.common import tfrecord
from dlbench.study.runs import Run
from dlbench.trainer.reading import reader
from dlbench.trainer.reading.converted import InputSettings
from dlbench.trainer.reading.reader import Batches, DatasetReader, GrainReader, Order
from dlbench.trainer.tasks import TASKS

TASK = TASKS["classification"]
# Of a model that takes images of 2 x 2 pixels in three classes.
NATIVE = SimpleNamespace(TASK="classification", INPUT_SHAPE=(2, 2, 1), CLASSES=3)
RECORDS = 40


class Strategy:
    size, devices_per_process, ranks_per_batch = 2, 2, 1

    def __init__(self, rank):
        self.rank = rank

    def to_devices(self, values):
        return "on devices", values.tolist()

    def prefetch_to_devices(self, batches):
        return (tuple(map(self.to_devices, batch)) for batch in batches)


def halved(inputs):
    return inputs.astype(np.float32) / 2


def source(dataset="synthetic", folder=None, rank=0, **fields):
    run = Run(model="lenet5", dataset=dataset, batch_per_device=4, steps=5, **fields)
    return reader.Items(InputSettings(run, Strategy(rank), NATIVE, TASK, halved, seed=1), folder)


def numbered(folder, kind="image"):
    """A folder with images whose pixels are all the image's number, as those of digits."""
    splits = {}
    for split in ("train", "validation"):
        path = folder / f"{split}-00000-of-00001"
        images = [{"image/encoded": bytes([i] * 4), "image/class/label": i} for i in range(RECORDS)]
        path.write_bytes(b"".join(tfrecord.record(tfrecord.example(image)) for image in images))
        shard = {"file": path.name, "records": RECORDS, "bytes": path.stat().st_size}
        splits[split] = {"records": RECORDS, "shards": [shard]}
    reader = {"encoding": "raw", "shape": [2, 2, 1], "classes": RECORDS, "first_label": 0}
    manifest = {"dataset": "digits", "kind": kind, "reader": reader, "splits": splits}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return str(folder)


def some(batches, steps):
    return list(itertools.islice(batches, steps))


def test_synthetic_items_are_scaled_once_and_the_same_in_every_step():
    synthetic = source()
    first, second = some(synthetic.batches(0), 2)
    (_, inputs), (_, targets) = first
    assert first is second
    assert np.shape(inputs) == (8, 2, 2, 1)
    assert np.shape(targets) == (8,)
    pixels, _ = TASK.synthetic(np.random.default_rng(1), 8, (2, 2, 1), 3)
    assert inputs == (pixels / 2).tolist()
    assert synthetic.scaled(pixels) is pixels
    assert (synthetic.item_shape, synthetic.classes) == ((2, 2, 1), 3)
    assert (synthetic.records, synthetic.content_sha256) == (None, None)
    assert not list(synthetic.held_out(8))
    assert some(source(rank=1).batches(0), 1) != [first]


@pytest.mark.parametrize(("probe", "placed"), [("synthetic", 2), ("copied", 6)])
def test_probes_have_items_shaped_and_scaled_as_stored_ones_placed_once_or_for_each_step(
    tmp_path, monkeypatch, probe, placed
):
    copies, to_devices = [], Strategy.to_devices
    monkeypatch.setattr(
        Strategy, "to_devices", lambda self, v: copies.append(v.dtype) or to_devices(self, v)
    )
    made = source("digits", numbered(tmp_path), probe=probe)
    batches = some(made.batches(0), 3)
    (_, inputs), (_, targets) = batches[0]
    assert batches == [batches[0]] * 3
    assert np.shape(inputs) == (8, 2, 2, 1) and np.shape(targets) == (8,)
    assert copies == [np.uint8, np.int32] * (placed // 2)
    assert (made.scaled, made.records, made.classes) == (halved, None, RECORDS)


def test_stored_items_are_spread_as_they_are_scaled_in_the_step_and_held_out_once(tmp_path):
    stored = source("digits", numbered(tmp_path))
    for (where, inputs), (_, targets) in some(stored.batches(0), 3):
        assert where == "on devices"
        assert [image[0][0][0] for image in inputs] == targets
        assert len(targets) == 8
    assert stored.scaled is halved
    assert (stored.item_shape, stored.classes, stored.records) == ((2, 2, 1), RECORDS, RECORDS)
    assert len(stored.content_sha256) == 64
    batches = list(stored.held_out(16))
    assert [len(targets) for _, targets in batches] == [16, 16, 8]
    assert np.concatenate([targets for _, targets in batches]).tolist() == list(range(RECORDS))


def test_processes_share_an_epoch_of_stored_items_and_go_on_where_they_stopped(tmp_path):
    folder = numbered(tmp_path)
    batches = [some(source("digits", folder, rank).batches(0), 5) for rank in range(2)]
    read = [label for each in batches for _, (_, labels) in each for label in labels]
    assert sorted(read[:20] + read[40:60]) == list(range(RECORDS))
    assert some(source("digits", folder, 1).batches(3), 2) == batches[1][3:]


def test_data_without_a_folder_or_of_another_kind_than_the_model_learns_is_refused(tmp_path):
    folder = numbered(tmp_path, kind="mask")
    with pytest.raises(Error, match="learns classification and needs data of the kind image"):
        source("digits", folder)
    with pytest.raises(Error, match="digits is not synthetic: --data must name its folder"):
        source("digits")


COUNTS = (17, 1, 30, 9, 25)  # records of each shard
TOKENS = 16


def converted(folder, reader, features, kind="image", counts=COUNTS):
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
    layout = {"encoding": "raw", "shape": [2, 2, 1], "classes": 82, "first_label": 0}
    layout["augmentation"] = "shift_flip"
    return converted(
        tmp_path / "images",
        layout,
        lambda number: {"image/encoded": bytes([number] * 4), "image/class/label": number},
    )


def labels(folder, steps, *order, **fields):
    batches = DatasetReader(folder, **fields).training_batches(*order)
    return np.stack([targets for _, targets in some(batches, steps)])


@pytest.mark.parametrize("cache", ["memory", "none"])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("batch", [8, 100])  # more than an epoch has, too
def test_each_record_is_read_once_an_epoch_over_all_processes(images, cache, size, batch):
    steps, order = 60, (batch, 3)
    reads = [labels(images, steps, *order, rank, size, cache=cache) for rank in range(size)]
    if cache == "memory":
        endless = np.stack(reads, axis=2).reshape(-1)
        epochs = [endless[82 * epoch : 82 * (epoch + 1)] for epoch in range(4)]
    else:
        shares = [82 * (rank + 1) // size - 82 * rank // size for rank in range(size)]
        parts = [
            read.ravel()[: 4 * share].reshape(4, share)
            for read, share in zip(reads, shares, strict=True)
        ]
        epochs = list(np.concatenate(parts, axis=1))
    assert all(sorted(epoch) == list(range(82)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 4


@pytest.mark.parametrize("cache", ["memory", "none"])
def test_the_order_is_the_seeds_alone_and_a_later_start_goes_on_in_it(images, cache):
    whole = some(DatasetReader(images, cache=cache).training_batches(8, 3, 1, 2), 24)
    later = some(DatasetReader(images, cache=cache).training_batches(8, 3, 1, 2, 7), 17)
    for found, expected in zip(later, whole[7:], strict=True):
        assert [part.tolist() for part in found] == [part.tolist() for part in expected]
    assert (labels(images, 24, 8, 4, 1, 2, cache=cache) != [t for _, t in whole]).any()


def test_a_global_batch_holds_the_same_items_however_many_share_it(images):
    whole = labels(images, 20, 8, 3)
    halves = [labels(images, 20, 4, 3, rank, 2) for rank in range(2)]
    assert (np.sort(np.concatenate(halves, axis=1)) == np.sort(whole)).all()


def test_shards_are_shuffled_and_records_within_windows():
    numbers = reader.epoch_order((6,) * 10, 12, 1, 0)
    assert [len(set(part // 6)) for part in numbers.reshape(5, 12)] == [2] * 5
    assert sorted(numbers) == list(range(60))
    assert numbers.tolist() != reader.epoch_order((6,) * 10, 12, 1, 1).tolist()


@pytest.mark.parametrize("cache", ["memory", "none"])
def test_threads_and_workers_of_others_change_no_item(images, cache):
    order = (8, 1, 1, 2)
    usual = some(DatasetReader(images, cache=cache).training_batches(*order, 3), 12)
    made = DatasetReader(images, cache=cache, workers=3, prefetch=5)
    threads = some(made.training_batches(*order, 3), 12)
    batches = pickle.loads(pickle.dumps(Batches(made, 3, Order(*order))))  # as workers get it
    for number in (0, 11, 5, 6):
        for found in (threads[number], batches[number]):
            assert [part.tolist() for part in found] == [part.tolist() for part in usual[number]]


def test_windows_of_a_text_and_their_masks_are_the_same_in_workers(tmp_path):
    tokens = bytes(range(250)) * 2
    folder = converted(
        tmp_path / "text",
        {"encoding": "stream", "dtype": "uint8", "classes": 250},
        lambda number: {"number": number, "tokens": tokens[number * 50 : number * 50 + 50]},
        kind="text",
        counts=(4, 6),
    )
    data = DatasetReader(folder, tokens=TOKENS)
    data.mask = 250
    usual = some(data.training_batches(4, 1), 9)[8]
    found = pickle.loads(pickle.dumps(Batches(data, 0, Order(4, 1))))[8]
    assert [part.tolist() for part in found] == [part.tolist() for part in usual]


def test_small_images_are_shifted_by_each_distance_and_mirrored_equally_often():
    row = np.arange(1, 9, dtype=np.uint8)[None, None, :, None].repeat(20_000, 0)
    images = reader.shifted(row, np.random.default_rng(1))[:, 0, :, 0].astype(int)
    kept = images[(images > 0).sum(1) > 1]
    assert len(kept) == pytest.approx(20_000 / 9, rel=0.1)  # one of nine vertical shifts shows it
    assert np.mean([np.diff(line[line > 0])[0] < 0 for line in kept]) == pytest.approx(
        0.5, abs=0.05
    )
    left = np.array([(line == 0).sum() * (1 if line[0] == 0 else -1) for line in kept])
    assert np.bincount(left + 4, minlength=9) / len(left) == pytest.approx(1 / 9, abs=0.03)


def test_parts_of_photographs_have_the_areas_and_ratios_that_are_asked_for():
    random, areas, ratios = np.random.default_rng(1), [], []
    for _ in range(2000):
        top, left, height, width = reader.crop_window(375, 500, random)
        assert 0 <= top <= 375 - height and 0 <= left <= 500 - width
        areas.append(height * width / (375 * 500))
        ratios.append(width / height)
    assert min(areas) > 0.07 and max(areas) > 0.9
    assert 0.74 < min(ratios) < 0.8 and 1.25 < max(ratios) < 1.35
    assert np.mean(areas) == pytest.approx(0.44, abs=0.03)  # large ones fit in few ratios
    assert reader.crop_window(1, 500, random) == (0, 0, 1, 500)


def read_epochs(folder):
    for number in range(11):
        DatasetReader(folder, cache="none").batch_at(number, Order(8, 1))


def test_a_damaged_record_is_named_with_its_shard_and_place(images):
    path = images / "train-00002-of-00005"
    content = bytearray(path.read_bytes())
    place = len(content) // 30 * 12
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
