"""items: batches of a run as NumPy arrays, which its strategy puts on devices."""

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest

from dlbench import Error
from dlbench.common import plugins, tfrecord
from dlbench.study.runs import Run
from dlbench.trainer.reading import items, stored
from dlbench.trainer.reading.converted import InputSettings

TASK = plugins.load("tasks", "classification")
# Of a model that takes images of 2 x 2 pixels in three classes.
NATIVE = SimpleNamespace(TASK="classification", INPUT_SHAPE=(2, 2, 1), CLASSES=3)
RECORDS = 40


class Strategy:
    """One of two processes, on two devices each."""

    size, devices_per_process = 2, 2

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
    return items.find(InputSettings(run, Strategy(rank), NATIVE, TASK, halved, seed=1), folder)


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


@pytest.mark.parametrize("cache", ["memory", "none"])
def test_threads_processes_and_batches_ahead_change_no_item(tmp_path, cache):
    folder, plain = numbered(tmp_path), {"cache": cache}
    usual = some(source("digits", folder, 1, **plain).batches(2), 12)
    for fields in ({"input_workers": 3, "prefetch": 5}, {"prefetch": 1}, {"input_workers": 2}):
        assert some(source("digits", folder, 1, **plain, **fields).batches(2), 12) == usual
    data = stored.DatasetReader(folder, cache=cache)
    order = (8, 1, 1, 2, 3)  # batch, seed, rank, size, first step
    parts = [data.batches_of_worker(3, number, order) for number in range(3)]
    for whole, own in zip(some(data.training_batches(*order), 12), itertools.cycle(parts)):
        assert [array.tolist() for array in next(own)] == [array.tolist() for array in whole]
