"""Our own reader and TensorFlow's read the same held-out items, one by one, and the same epochs.

And what needs processes: Grain's workers. PyTorch's DataLoader is in tests/frameworks, in its own
environment.
"""

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from dlbench import Error
from dlbench.trainer.reading import manifest
from dlbench.trainer.reading import text as reading_text
from dlbench.trainer.reading.reader import DatasetReader, GrainReader
from dlbench.trainer.tensorflow.pipelines import Data
from support.trainers import shards

SEED, TOKENS = 3, 16
READERS = DatasetReader, Data


@pytest.fixture
def numbered(tmp_path):
    return shards.numbered(tmp_path / "numbered", 11)


def photograph(index):
    """A JPEG of smooth colours in a size of its own, as photographs have."""
    height, width = 90 + 7 * index, 150 - 5 * index
    y, x = np.mgrid[:height, :width].astype(np.float32)
    waves = [128 + 100 * np.sin(way / (20 + index)) for way in (x, y, x + y)]
    return tf.io.encode_jpeg(np.stack(waves, axis=-1).astype(np.uint8), quality=90).numpy()


def photographs_in(folder, contents=photograph):
    reader = {"encoding": "jpeg", "classes": 12, "first_label": 1, "augmentation": "crop_flip"}

    def features(index):
        return {"image/encoded": contents(index), "image/class/label": index + 1}

    return shards.dataset(folder, 12, 2, reader, features)


@pytest.fixture
def photographs(tmp_path):
    return photographs_in(tmp_path / "photographs")


def arrays(batches, steps=None):
    return [tuple(map(np.asarray, batch)) for batch in itertools.islice(batches, steps)]


def assert_equal(found, expected, grey=0):
    for (inputs, targets), (their_inputs, their_targets) in zip(found, expected, strict=True):
        assert targets.tolist() == their_targets.tolist()
        assert (inputs.dtype, inputs.shape) == (their_inputs.dtype, their_inputs.shape)
        assert np.abs(inputs.astype(float) - their_inputs.astype(float)).max() <= grey


def assert_same_items(data, batch, grey=0):
    """Held-out items are the same, and so is an epoch of training, in another order."""
    own, theirs = (arrays(each.validation_batches(batch)) for each in data)
    assert_equal(own, theirs, grey)
    epochs = []
    for each in data:
        count = each.records("train")
        ((inputs, targets),) = arrays(each.training_batches(count, SEED), 1)
        order = np.lexsort([inputs.reshape(count, -1).sum(1), *targets.reshape(count, -1).T])
        assert order.tolist() != list(range(count))
        epochs.append([(inputs[order], targets[order])])
    assert_equal(*epochs, grey)
    for each in data:
        getattr(each, "close", lambda: None)()


@pytest.mark.parametrize("cache", ["memory", "none"])
def test_images_and_masks_are_those_that_tensorflow_reads(tmp_path, numbered, cache):
    assert_same_items([kind(numbered, cache=cache) for kind in READERS], 16)
    reader = {"encoding": "raw", "dtype": "float32", "shape": [8, 8, 1], "mask": [8, 8, 1]}
    random = np.random.default_rng(0)
    features = [
        {
            "image/encoded": random.normal(size=(8, 8, 1)).astype(np.float32).tobytes(),
            "image/mask": random.integers(0, 2, (8, 8, 1), np.uint8).tobytes(),
        }
        for _ in range(6)
    ]
    sky = shards.dataset(tmp_path / "sky", 6, 1, reader, features.__getitem__, "mask")
    assert_same_items([kind(sky, cache=cache) for kind in READERS], 4)


@pytest.mark.parametrize("cache", ["memory", "none"])
def test_the_centres_of_photographs_are_those_that_tensorflow_takes(photographs, cache):
    data = [kind(photographs, (32, 32, 3), False, cache) for kind in READERS]
    assert_same_items(data, 5, grey=1)


def text_of(folder, dtype="uint8", different=250):
    """A text of 1000 tokens in pieces of 100; a token is its place modulo `different`."""
    reader = {"encoding": "stream", "dtype": dtype, "classes": different}
    places = np.arange(1000) % different
    return shards.dataset(
        folder,
        10,
        3,
        reader,
        lambda index: {
            "number": index,
            "tokens": places[index * 100 : (index + 1) * 100].astype(dtype).tobytes(),
        },
        kind="text",
    )


@pytest.fixture
def text(tmp_path):
    return text_of(tmp_path / "text")


@pytest.mark.parametrize(
    ("dtype", "different", "tokens", "sizes"),
    [("uint8", 250, 16, [25, 25, 12]), ("<u2", 900, 16, [25, 25, 12]), ("<u2", 900, 35, [25, 3])],
)
def test_windows_of_a_text_are_those_of_tensorflow(tmp_path, dtype, different, tokens, sizes):
    folder = text_of(tmp_path / "text", dtype, different)
    data = [kind(folder, tokens=tokens) for kind in READERS]
    assert_same_items(data, 25)
    for each in data:
        assert each.records("validation") == sum(sizes)
        batches = arrays(each.validation_batches(25))
        assert [len(inputs) for inputs, _ in batches] == sizes
        assert all(((targets - inputs) % different == 1).all() for inputs, targets in batches)
        each.mask = different
    assert_equal(*(arrays(each.validation_batches(25)) for each in data))


@pytest.mark.parametrize("kind", READERS)
def test_the_same_number_of_tokens_of_each_window_is_masked_and_is_the_target(text, kind):
    data = kind(text, tokens=TOKENS)
    data.mask = 255
    for batches in (data.validation_batches(25), data.training_batches(62, SEED)):
        inputs, targets = map(np.concatenate, zip(*arrays(batches, 3), strict=True))
        taken = targets != reading_text.IGNORED
        assert set(taken.sum(1)) == {reading_text.masked_count(TOKENS)} == {2}
        whole = np.where(taken, targets, inputs)
        assert (np.diff(whole, axis=1) % 250 == 1).all()
        shown = inputs[taken]
        assert 0.65 < (shown == 255).mean() < 0.95  # of 124 or more, of which 80 % are expected
        assert len(set(map(tuple, taken))) > 20


def test_a_text_shorter_than_one_window_and_an_unknown_encoding_are_refused(text):
    content = manifest.read(text)
    for kind in READERS:
        with pytest.raises(Error, match="has 1000 tokens, fewer than the 1001 of one window"):
            kind(text, tokens=1000).records("train")
    manifest.write(text / manifest.NAME, content | {"reader": {"encoding": "tokens"}})
    for kind in READERS:
        with pytest.raises(Error, match=r"reader.encoding: expected one of .* found"):
            kind(text, tokens=16)


@pytest.mark.parametrize("cache", ["memory", "none"])
@pytest.mark.parametrize("kind", READERS)
def test_workers_and_batches_ahead_change_no_item(numbered, photographs, cache, kind):
    for folder, shape in ((numbered, None), (photographs, (32, 48, 3))):
        found = []
        for workers, ahead in ((None, None), (2, 0), (3, 4)):
            data = kind(folder, shape, cache=cache, workers=workers, prefetch=ahead)
            found.append(arrays(data.training_batches(8, SEED, rank=1, size=2, first_step=2), 9))
            getattr(data, "close", lambda: None)()
        assert_equal(found[1], found[0])
        assert_equal(found[2], found[0])


def test_batches_are_made_ahead_of_the_steps_that_need_them(numbered, monkeypatch):
    made, make = [], DatasetReader.batch_at

    def counted(*arguments):
        made.append(arguments)
        return make(*arguments)

    monkeypatch.setattr(DatasetReader, "batch_at", counted)
    next(DatasetReader(numbered).training_batches(4, SEED))
    assert len(made) == 1
    batches = DatasetReader(numbered, workers=1, prefetch=3).training_batches(4, SEED)
    next(batches)
    wait_until(lambda: len(made) > 3)
    ahead = Data(numbered).training_batches(4, SEED)  # with options around it
    assert "Prefetch" in type(ahead._input_dataset).__name__


@pytest.fixture
def grained():
    """Batches that Grain's workers have made; none of these is left."""
    pytest.importorskip("grain")

    def some(steps, folder, *how, batch=4, order=(), **fields):
        data = GrainReader(folder, *how, **fields)
        batches = data.training_batches(batch, SEED, *order)
        try:
            return [tuple(map(np.array, each)) for each in itertools.islice(batches, steps)]
        finally:
            batches.close()

    yield some
    assert not multiprocessing.active_children()


def test_grain_gives_the_items_of_our_own_reader_over_epochs_ranks_and_resumes(
    numbered, photographs, text, grained
):
    for steps, batch, order, folder, *shape, fields in (
        (60, 4, (1, 3), numbered, {"workers": 3, "prefetch": 2}),
        (60, 4, (0, 1, 29), numbered, {"workers": 1, "cache": "none"}),
        (6, 8, (), photographs, (32, 48, 3), {"workers": 2}),
        (40, 4, (), text, {"tokens": TOKENS, "workers": 2}),
    ):
        found = grained(steps, folder, *shape, batch=batch, order=order, **fields)
        own = DatasetReader(folder, *shape, **fields)
        assert_equal(found, arrays(own.training_batches(batch, SEED, *order), steps))
        own.close()


def test_an_item_that_a_worker_cannot_read_is_named(tmp_path, grained):
    broken = photographs_in(
        tmp_path / "broken", lambda index: b"GIF89a" if index == 8 else photograph(index)
    )
    with pytest.raises(Error, match=r"train-00001-of-00002: record 2: the image is no JPEG"):
        grained(6, broken, (32, 32, 3), workers=2)


def test_a_worker_that_was_killed_ends_the_run_and_says_so(numbered, grained):
    batches = GrainReader(numbered, workers=2).training_batches(4, SEED)
    next(batches)
    first, _ = multiprocessing.active_children()
    first.kill()
    with pytest.raises(Error, match=r"a worker of input grain has ended: .* exit code -9"):
        for _ in range(100):
            next(batches)


def test_signals_for_the_trainer_do_not_end_workers_and_its_end_does(numbered, tmp_path):
    """A launcher sends them to all processes of a run, of which the trainer alone has to do."""
    pytest.importorskip("grain")
    program = tmp_path / "reading.py"
    program.write_text(f"""
import multiprocessing, sys
from dlbench.trainer.reading.reader import GrainReader
if __name__ == "__main__":
    batches = GrainReader({str(numbered)!r}, workers=2).training_batches(4, 1)
    for _ in range(4):  # both have begun
        next(batches)
    print(*(each.pid for each in multiprocessing.active_children()), flush=True)
    for line in sys.stdin:
        print(len(next(batches)[1]), flush=True)
""")
    library = Path(__file__).parents[2] / "workflow_scripts"
    how = {"env": os.environ | {"PYTHONPATH": str(library)}, "text": True}
    how |= {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, program], **how) as process:
        workers = [int(pid) for pid in process.stdout.readline().split()]
        assert len(workers) == 2
        for pid in workers:
            for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
                os.kill(pid, number)
        for _ in range(20):
            process.stdin.write("next\n")
            process.stdin.flush()
            assert process.stdout.readline() == "4\n"
        process.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def wait_until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
