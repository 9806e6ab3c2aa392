"""reading: each record once an epoch, in an order that depends on the seed only."""

import numpy as np
import pytest
import tensorflow as tf

from dlbench.data import pictures
from dlbench.trainer.reading import manifest
from dlbench.trainer.tensorflow.pipelines import Data
from support.trainers import shards


@pytest.fixture(params=["memory", "none"])
def cache(request):
    return request.param


@pytest.fixture
def numbered(tmp_path):
    return shards.numbered(tmp_path / "numbered", 7)


def labels(folder, cache, batch, steps, seed=3, **how):
    batches = Data(folder, cache=cache).training_batches(batch, seed, **how)
    found = []
    for images, targets in batches.take(steps):
        assert images.numpy().ravel().tolist() == targets.numpy().tolist()
        found += targets.numpy().tolist()
    return found


@pytest.mark.parametrize("size", [1, 3])
def test_each_record_is_read_once_an_epoch_over_all_ranks(numbered, cache, size):
    """The counts do not divide: 101 records, batches of 4, and three ranks."""
    reads = [labels(numbered, cache, 4, 120, rank=rank, size=size) for rank in range(size)]
    # How many of them a rank has depends on whether the dataset is in memory.
    shares = [-(-(101 - rank) // size) for rank in range(size)]
    whole = [101 * (rank + 1) // size - 101 * rank // size for rank in range(size)]
    epochs = [
        sorted(label for read, count in zip(reads, mine, strict=True) for label in read[:count])
        for mine in (shares, whole)
    ]
    assert list(range(101)) in epochs
    if size == 1:
        second = reads[0][101:202]
        assert sorted(second) == list(range(101))
        assert second != reads[0][:101]


@pytest.mark.ci
def test_the_order_is_the_seeds_alone_and_a_later_start_goes_on_in_it(numbered, cache):
    whole = labels(numbered, cache, 4, 60)
    assert labels(numbered, cache, 4, 20, first_step=40) == whole[160:]
    assert labels(numbered, cache, 4, 60, seed=4) != whole


def test_a_global_batch_holds_the_same_items_however_many_share_it(numbered):
    whole = labels(numbered, "memory", 8, 40)
    halves = [labels(numbered, "memory", 4, 40, rank=rank, size=2) for rank in range(2)]
    for step in range(40):
        both = halves[0][4 * step : 4 * step + 4] + halves[1][4 * step : 4 * step + 4]
        assert sorted(both) == sorted(whole[8 * step : 8 * step + 8])


def test_held_out_items_come_once_in_their_order(numbered):
    batches = Data(numbered).validation_batches(16)
    assert [t for _, targets in batches for t in targets.numpy()] == list(range(101))


def photograph(index):
    pixels = np.random.default_rng(index).integers(0, 256, (4, 6, 3))
    enlarged = tf.cast(tf.image.resize(pixels, (60, 90)), tf.uint8)
    return tf.io.encode_jpeg(enlarged, quality=90).numpy()


def pictures_of_all_kinds():
    """JPEGs of each kind that TensorFlow writes, those cut at many places, and other files."""
    pixels = tf.io.decode_jpeg(photograph(1))
    whole = [
        tf.io.encode_jpeg(image, progressive=progressive).numpy()
        for image in (pixels, pixels[..., :1])
        for progressive in (False, True)
    ]
    cuts = [content[: len(content) * part // 12] for content in whole for part in range(12)]
    cuts += [content[:-2] for content in whole]
    others = [b"", b"<html></html>", b"GIF89a", tf.io.encode_png(pixels).numpy()]
    return [*whole, *cuts, *others, whole[0] + b"more"]


def test_what_passes_the_check_of_headers_is_what_tensorflow_decodes():
    def decodes(content):
        try:
            shape = tf.image.extract_jpeg_shape(content)
            window = tf.concat([[0, 0], shape[:2]], axis=0)
            return tf.image.decode_and_crop_jpeg(content, window, channels=3).shape.rank == 3
        except tf.errors.InvalidArgumentError:
            return False

    def passes(content):
        try:
            pictures.check(content, "header", "x.JPEG")
        except pictures.PictureError:
            return False
        return True

    found = [(decodes(content), passes(content)) for content in pictures_of_all_kinds()]
    assert {True, False} == {decoded for decoded, _ in found}
    assert all(decoded == passed for decoded, passed in found), found


@pytest.fixture(params=["tensorflow/models", "tfds"])
def photographs(request, tmp_path):
    image, label = manifest.KEYS[request.param]
    first = 1 if request.param == "tensorflow/models" else 0
    reader = {"encoding": "jpeg", "classes": 20, "first_label": first, "layout": request.param,
              "augmentation": "crop_flip"}  # fmt: skip
    return shards.dataset(
        tmp_path / "photographs",
        20,
        2,
        reader,
        lambda index: {image: photograph(index), label: index + first},
    )


def test_photographs_are_cropped_to_the_models_size_anew_in_each_epoch_of_a_seed(photographs):
    def epochs():
        batches = Data(photographs, (16, 16, 3)).training_batches(20, seed=1).take(2)
        images, targets = zip(*((i.numpy(), t.numpy()) for i, t in batches), strict=True)
        return np.concatenate(images), set(np.concatenate(targets))

    images, targets = epochs()
    assert (images.shape, images.dtype, targets) == ((40, 16, 16, 3), "uint8", set(range(20)))
    assert (images == epochs()[0]).all()
    assert not any((image == images[20:]).all(axis=(1, 2, 3)).any() for image in images[:20])


def test_without_variation_and_for_evaluation_the_centre_is_taken(photographs):
    plain = Data(photographs, (16, 16, 3), augment=False)
    images, targets = next(iter(plain.training_batches(20, seed=1)))
    trained = dict(zip(targets.numpy().tolist(), images.numpy(), strict=True))
    for images, targets in plain.validation_batches(7):
        for image, target in zip(images.numpy(), targets.numpy(), strict=True):
            assert (trained[int(target)] == image).all()


def test_no_tuner_keeps_the_end_of_an_iterator_waiting(numbered, photographs, cache):
    """It would until it looks again. What decodes is tuned all the same, but for evaluation."""
    for folder, tuned in ((numbered, False), (photographs, True)):
        data = Data(folder, image_shape=(8, 8, 1), cache=cache)
        assert not data.encoded or data.item_shape == (8, 8, 3)  # of a model for grey images
        assert data.training_batches(4, 3).options().autotune.enabled == tuned
        assert not data.validation_batches(4).options().autotune.enabled


def test_small_images_are_shifted_and_mirrored_where_the_dataset_says_so(tmp_path):
    random = np.random.default_rng(0)
    pixels = random.integers(1, 256, (10, 32, 32, 3), np.uint8)
    reader = {"encoding": "raw", "shape": [32, 32, 3], "classes": 10, "first_label": 0,
              "augmentation": "shift_flip"}  # fmt: skip
    folder = shards.dataset(
        tmp_path / "small",
        10,
        1,
        reader,
        lambda i: {"image/encoded": pixels[i].tobytes(), "image/class/label": i},
    )
    images, targets = next(iter(Data(folder).training_batches(200, seed=1)))
    padded = np.pad(pixels, [(0, 0), (4, 4), (4, 4), (0, 0)])
    flipped = 0
    for image, target in zip(images.numpy(), targets.numpy(), strict=True):
        views = {
            (y, x, way): padded[target, y : y + 32, x : x + 32][:, ::way]
            for y in range(9)
            for x in range(9)
            for way in (1, -1)
        }
        (found,) = [key for key, view in views.items() if (view == image).all()]
        flipped += found[2] == -1
    assert 60 < flipped < 140
    plain = Data(folder, augment=False).training_batches(10, seed=1)
    for image, target in zip(*next(iter(plain)), strict=True):
        assert (image.numpy() == pixels[int(target)]).all()


def test_shifts_and_flips_are_uniform_and_neighbours_independent():
    data = Data.__new__(Data)
    data.augmentation, data.mask, data.item_shape = "shift_flip", None, (1, 8, 1)
    count = 20_000
    row = tf.cast(tf.range(1, 9), tf.uint8)[None, None, :, None]
    images, _ = data._augmented(tf.tile(row, [count, 1, 1, 1]), None, tf.constant([3, 0]))
    images = images.numpy()[:, 0, :, 0].astype(int)
    kept = images[(images > 0).sum(axis=1) > 1]
    assert len(kept) == pytest.approx(count / 9, rel=0.1)  # one of nine vertical shifts shows it
    flipped = np.array([np.diff(line[line > 0])[0] < 0 for line in kept])
    assert flipped.mean() == pytest.approx(0.5, abs=0.05)
    left = np.array([(line == 0).sum() * (1 if line[0] == 0 else -1) for line in kept])
    shares = np.bincount(left + 4, minlength=9) / len(left)
    assert shares == pytest.approx(np.full(9, 1 / 9), abs=0.03)
    assert abs(np.corrcoef(left[1:], left[:-1])[0, 1]) < 0.06
    assert abs(np.corrcoef(flipped[1:], flipped[:-1])[0, 1]) < 0.06
