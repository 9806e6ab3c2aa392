"""Our own reader, and Grain's, give the items of TensorFlow's pipelines, one by one.

For the same seed. PyTorch's DataLoader is in tests/frameworks, in its own environment.
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
from dlbench.trainer.reading import manifest, pictures, random_numbers
from dlbench.trainer.reading import text as reading_text
from dlbench.trainer.reading.grained import GrainReader
from dlbench.trainer.reading.stored import DatasetReader
from dlbench.trainer.tensorflow.pipelines import Data
from support.trainers import shards

SEED, TOKENS = 3, 16


@pytest.fixture(autouse=True)
def seeded():
    tf.random.set_seed(SEED)  # as the engine does


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


def both(
    folder, steps, batch, shape=None, cache="auto", augment=True, mask=None, tokens=TOKENS, **how
):
    """(ours, TensorFlow's) batches of a few steps."""
    made = [
        kind(folder, shape, augment, cache, tokens, reading_text) for kind in (DatasetReader, Data)
    ]
    mine, other = made
    mine.mask = other.mask = mask
    ours = list(itertools.islice(mine.training_batches(batch, SEED, **how), steps))
    mine.close()
    theirs = other.training_batches(batch, SEED, **how)
    return ours, [(i.numpy(), t.numpy()) for i, t in theirs.take(steps)]


def assert_equal(ours, theirs, grey=0):
    for (inputs, targets), (their_inputs, their_targets) in zip(ours, theirs, strict=True):
        assert targets.tolist() == their_targets.tolist()
        assert (inputs.dtype, inputs.shape) == (their_inputs.dtype, their_inputs.shape)
        assert np.abs(inputs.astype(float) - their_inputs.astype(float)).max() <= grey


@pytest.mark.parametrize("how", [{}, {"rank": 1, "size": 3}, {"first_step": 29}])
@pytest.mark.parametrize("cache", [pytest.param("memory", marks=pytest.mark.ci), "none"])
def test_the_order_of_items_is_tensorflows_over_epochs_ranks_and_resumes(numbered, cache, how):
    ours, theirs = both(numbered, 60, 4, cache=cache, **how)
    assert_equal(ours, theirs)
    assert len({int(t) for _, targets in ours for t in targets}) > 30


@pytest.mark.parametrize("cache", ["memory", "none"])
def test_small_images_and_masks_are_read_and_changed_as_tensorflow_does(tmp_path, cache):
    random = np.random.default_rng(0)
    pixels = random.integers(1, 256, (10, 32, 32, 3), np.uint8)
    reader = {"encoding": "raw", "shape": [32, 32, 3], "classes": 10, "first_label": 0,
              "augmentation": "shift_flip"}  # fmt: skip
    features = [
        {"image/encoded": p.tobytes(), "image/class/label": i} for i, p in enumerate(pixels)
    ]
    folder = shards.dataset(tmp_path / "small", 10, 1, reader, features.__getitem__)
    ours, theirs = both(folder, 10, 16, cache=cache)
    assert_equal(ours, theirs)
    assert not (ours[0][0][0] == pixels[ours[0][1][0]]).all()
    reader = {"encoding": "raw", "dtype": "float32", "shape": [8, 8, 1], "mask": [8, 8, 1]}
    features = [
        {
            "image/encoded": random.normal(size=(8, 8, 1)).astype(np.float32).tobytes(),
            "image/mask": random.integers(0, 2, (8, 8, 1), np.uint8).tobytes(),
        }
        for _ in range(6)
    ]
    sky = shards.dataset(tmp_path / "sky", 6, 1, reader, features.__getitem__, "mask")
    assert_equal(*both(sky, 5, 4, cache=cache))
    assert_equal(*held_out(sky, 4))


def held_out(folder, batch, *shape):
    """(ours, TensorFlow's) batches of the held-out items."""
    return [
        [tuple(map(np.asarray, each)) for each in kind(folder, *shape).validation_batches(batch)]
        for kind in (DatasetReader, Data)
    ]


@pytest.mark.parametrize("cache", ["memory", "none"])
def test_photographs_are_cut_out_and_mirrored_or_their_centre_taken_as_tensorflow_does(
    photographs, cache
):
    assert_equal(*both(photographs, 6, 8, (32, 48, 3), cache), grey=1)
    assert_equal(*both(photographs, 2, 8, (32, 32, 3), cache, augment=False), grey=1)
    assert_equal(*held_out(photographs, 5, (32, 32, 3)), grey=1)


def test_permutations_are_those_of_random_index_shuffle():
    for last in (1, 99, 65_535, 65_536, 60_000, 2**40 - 1):
        places = np.random.default_rng(0).integers(0, last + 1, 200)
        for seed in ((1, 0, 0), (7, 3, 0), (2**31 + 5, 0, 1)):
            theirs = tf.raw_ops.RandomIndexShuffle(
                index=places, seed=tf.constant(seed, tf.int64), max_index=last, rounds=12
            )
            ours = random_numbers.shuffled_places(places, seed, last, 12)
            assert ours.tolist() == theirs.numpy().tolist(), last


def test_parts_of_images_of_any_size_are_those_of_tensorflow():
    random = np.random.default_rng(5)
    for position in range(300):
        height, width = (int(n) for n in random.integers(1, 600, 2))
        begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
            [height, width, 3], tf.zeros([1, 0, 4]), tf.constant([SEED, position], tf.int64), 0.0,
            (3 / 4, 4 / 3), (0.08, 1.0), 10, True,
        )  # fmt: skip
        theirs = (*begin.numpy()[:2].tolist(), *extent.numpy()[:2].tolist())
        assert pictures.crop_window(height, width, SEED, position) == theirs, (height, width)


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
    ("dtype", "different", "mask", "tokens", "sizes"),
    [
        ("uint8", 250, None, 16, [25, 25, 12]),
        ("uint8", 250, 255, 16, [25, 25, 12]),
        ("<u2", 900, None, 16, [25, 25, 12]),
        ("<u2", 900, 901, 35, [25, 3]),
    ],
)
@pytest.mark.parametrize("how", [{}, {"rank": 1, "size": 3}, {"first_step": 29}])
def test_windows_of_a_text_and_what_is_masked_are_tensorflows(
    tmp_path, dtype, different, mask, tokens, sizes, how
):
    text = text_of(tmp_path / "text", dtype, different)
    ours, theirs = both(text, 40, 4, mask=mask, tokens=tokens, **how)
    assert_equal(ours, theirs)
    assert len({int(inputs[0, 0]) for inputs, _ in ours}) > 16
    if mask is None:
        assert all(((targets - inputs) % different == 1).all() for inputs, targets in ours)
    scored = []
    for kind in (DatasetReader, Data):
        data = kind(text, tokens=tokens, text=reading_text)
        data.mask = mask
        assert data.records("validation") == sum(sizes)
        scored.append([tuple(map(np.asarray, b)) for b in data.validation_batches(25)])
    assert_equal(*scored)
    assert [len(inputs) for inputs, _ in scored[0]] == sizes


def test_the_same_number_of_tokens_of_each_window_is_masked_and_is_the_target(text):
    data = DatasetReader(text, tokens=TOKENS, text=reading_text)
    whole = np.concatenate([inputs for inputs, _ in data.validation_batches(25)])
    data.mask = 255
    inputs, targets = map(np.concatenate, zip(*data.validation_batches(25), strict=True))
    taken = targets != reading_text.IGNORED
    assert set(taken.sum(1)) == {reading_text.masked_count(TOKENS)} == {2}
    assert (targets[taken] == whole[taken]).all()
    assert (inputs[~taken] == whole[~taken]).all()
    shown = inputs[taken]
    assert 0.6 < (shown == 255).mean() < 0.95  # of 124, of which 80 % are expected
    assert len(set(map(tuple, taken))) > 20


def test_a_text_shorter_than_one_window_and_an_unknown_encoding_are_refused(text):
    content = manifest.read(text)
    for kind in (DatasetReader, Data):
        with pytest.raises(Error, match="has 1000 tokens, fewer than the 1001 of one window"):
            kind(text, tokens=1000, text=reading_text).records("train")
    manifest.write(text / manifest.NAME, content | {"reader": {"encoding": "tokens"}})
    for kind in (DatasetReader, Data):
        with pytest.raises(Error, match=r"reader.encoding: expected one of .* found"):
            kind(text, tokens=16, text=reading_text)


@pytest.mark.parametrize("cache", ["memory", "none"])
def test_threads_and_batches_ahead_of_a_pipeline_change_no_item(numbered, photographs, cache):
    for folder, shape in ((numbered, None), (photographs, (32, 48, 3))):
        many = [
            Data(folder, shape, cache=cache, workers=workers, prefetch=ahead)
            for workers, ahead in ((None, None), (2, 0), (3, 4))
        ]
        usual, *others = (
            [(i.numpy(), t.numpy()) for i, t in data.training_batches(8, SEED).take(12)]
            for data in many
        )
        for other in others:
            assert_equal(other, usual)


def test_batches_are_made_ahead_of_the_steps_that_need_them(numbered, monkeypatch):
    made, make = [], DatasetReader._augmented

    def counted(*arguments):
        made.append(arguments)
        return make(*arguments)

    monkeypatch.setattr(DatasetReader, "_augmented", counted)
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


def test_grain_gives_the_items_of_tensorflow_over_epochs_ranks_and_resumes(
    numbered, photographs, text, grained
):
    of_text = {"tokens": TOKENS, "text": reading_text}
    for steps, batch, grey, order, folder, *shape, fields in (
        (60, 4, 0, (1, 3), numbered, {"workers": 3, "prefetch": 2}),
        (60, 4, 0, (0, 1, 29), numbered, {"workers": 1, "cache": "none"}),
        (6, 8, 1, (), photographs, (32, 48, 3), {"workers": 2}),
        (40, 4, 0, (), text, of_text | {"workers": 2}),
    ):
        found = grained(steps, folder, *shape, batch=batch, order=order, **fields)
        theirs = Data(folder, *shape, **fields).training_batches(batch, SEED, *order).take(steps)
        assert_equal(found, [(i.numpy(), t.numpy()) for i, t in theirs], grey)


def test_an_item_that_a_worker_cannot_read_is_named(tmp_path, grained):
    broken = photographs_in(
        tmp_path / "broken", lambda index: b"GIF89a" if index == 8 else photograph(index)
    )
    with pytest.raises(Error, match=r"train-00001-of-00002: record 2: an image .* is no JPEG"):
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
from dlbench.trainer.reading.grained import GrainReader
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
