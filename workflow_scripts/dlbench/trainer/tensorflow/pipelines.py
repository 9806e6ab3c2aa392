"""The items of a run's steps under TensorFlow: tf.data pipelines over the TFRecord shards of a
dataset, or synthetic items.

- A batch may span two epochs. So each record is read exactly once an epoch, over all ranks
  together, even if the batch size does not divide the number of records.
- Small splits are kept in memory. The record at a position of the endless order is a function of
  position and seed alone; rank r of n takes the positions r, r + n, r + 2n ... So a global batch
  holds the same items however many processes share it.
- Larger splits are read anew each epoch: the shards in random order, each rank its own share of the
  records, shuffled in a window. Shares differ by at most one record, so the ends of an epoch drift
  apart by one record an epoch.
- Augmentation follows from seed, rank and step alone. Images are uint8; the step scales them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from dlbench.machine import limits
from dlbench.trainer.reading import converted, text
from dlbench.trainer.reading.converted import (
    CENTRAL_SHARE,
    CROP_AREA,
    CROP_ATTEMPTS,
    CROP_RATIO,
    SHIFT_PIXELS,
    SHUFFLED_RECORDS,
    InputSettings,
)
from dlbench.trainer.reading.inputs import COPIED
from dlbench.trainer.tensorflow.strategies import Base

SHARDS_AT_ONCE = 8
SHUFFLE_ROUNDS = 12  # with 4, TensorFlow's default, neighbours are correlated (0.3 to 0.6)
# AutoGraph would take 0.3 s of each start, and no function here has a loop over a tensor.
_without_autograph = tf.autograph.experimental.do_not_convert
_split = tf.random.experimental.stateless_split


class Data(converted.ConvertedDataset):
    """Pipelines over a converted dataset."""

    @_without_autograph
    def training_batches(
        self, batch: int, seed: int, rank: int | tf.Tensor = 0, size: int = 1, first_step: int = 0
    ) -> tf.data.Dataset:
        """Endless batches of (inputs, targets) for one of `size` processes.

        Inputs have the shape (batch, *item_shape): uint8 images, other arrays with the dtype that
        the manifest names, or int32 tokens. Targets are int32 labels of the shape (batch,), uint8
        masks, or the int32 tokens that follow.

        Args:
            batch: items per step of this process.
            seed: of the order and the augmentation of the items; the same in all processes.
            rank: of this process; a tensor if the pipeline is built in another process.
            size: number of processes that share the items.
            first_step: number of steps that are skipped, because the run was resumed after them.
        """
        rank = tf.cast(rank, tf.int64)
        if self.in_memory:
            steps = self._numbers(batch, seed, rank, size, first_step)
            with tf.init_scope():  # here and now, even if the pipeline is built in another process
                load = self._taker()
        else:
            steps = self._records(batch, seed, rank, size, first_step)
            load = self._parsed

        def loaded(step, items):
            numbers = step * size + rank
            if self.encoded:  # each photograph has a seed of its own
                numbers = numbers * batch + tf.range(batch, dtype=tf.int64)
            return *load(items), tf.stack([tf.zeros_like(numbers) + seed, numbers], axis=-1)

        steps = steps.enumerate(first_step)
        if self.encoded:
            batches = (
                steps.map(loaded)
                .unbatch()
                .map(self._cropped, num_parallel_calls=self.workers or tf.data.AUTOTUNE)
                .batch(batch, drop_remainder=True)
            )
        else:
            batches = steps.map(
                lambda step, items: self._augmented(*loaded(step, items)),
                num_parallel_calls=self.workers or 1,
            )
        batches = batches.prefetch(tf.data.AUTOTUNE if self.prefetch is None else self.prefetch)
        # Only the number of threads that decode is worth tuning.
        return batches.with_options(_options(self.encoded and not self.workers, self.workers))

    @_without_autograph
    def validation_batches(self, batch: int) -> tf.data.Dataset:
        """All held-out items once, in the order of the shards; the last batch may be smaller.

        Shapes and dtypes are those of `training_batches`. Photographs are cropped to their central
        part; there is no other augmentation. Raises Error: shards that the manifest lists are
        missing.
        """
        if self.streamed:
            windows = (tf.TensorSpec((None, *self.item_shape), tf.int32),) * 2
            batches = tf.data.Dataset.from_generator(
                lambda: self.held_out_windows(batch), output_signature=windows
            )
            return batches.prefetch(2).with_options(_options())
        records = tf.data.TFRecordDataset([str(path) for path, _ in self.shards("validation")])
        if self.encoded:

            def central(record):
                images, labels = self._parsed(record[None])
                return self._centre(images[0]), labels[0]

            batches = records.map(central, num_parallel_calls=limits.usable_threads()).batch(batch)
        else:
            batches = records.batch(batch).map(self._parsed)
        return batches.prefetch(2).with_options(_options())

    def _numbers(self, batch, seed, rank, size, first_step):
        """The numbers of the items of each step, in memory."""
        count = self.records("train")

        def numbers(step):
            positions = step * batch * size + rank + size * tf.range(batch, dtype=tf.int64)
            epochs, places = positions // count, positions % count
            seeds = tf.stack([tf.zeros_like(epochs) + seed, epochs, tf.zeros_like(epochs)], axis=1)
            # The raw operation, because the function in tf.random takes one seed for all indices.
            return tf.raw_ops.RandomIndexShuffle(
                index=places,
                seed=seeds,
                max_index=tf.zeros_like(places) + (count - 1),
                rounds=SHUFFLE_ROUNDS,
            )

        return tf.data.Dataset.range(first_step, tf.int64.max).map(numbers)

    def _taker(self):
        """A function from numbers of training items in memory to their (inputs, targets)."""
        if self.streamed:
            row = tf.constant(self.row("train"))
            return lambda indices: self._windows(row, indices)
        records = tf.data.TFRecordDataset([str(path) for path, _ in self.shards("train")])
        parsed = records.batch(1024).map(self._parsed).with_options(_options())
        parts = list(parsed)
        arrays = tuple(tf.concat(part, axis=0) for part in zip(*parts, strict=True))
        return lambda indices: tuple(tf.gather(array, indices) for array in arrays)

    def _windows(self, row, indices):
        """Windows of a sequence of tokens: see reading/text.py."""
        length = self.item_shape[0]
        places = indices[:, None] * length + tf.range(length + 1, dtype=tf.int64)
        tokens = tf.cast(tf.gather(row, places), tf.int32)
        return tokens[:, :-1], tokens[:, 1:]

    def _masked(self, tokens, seed):
        """Windows with some tokens masked: see reading/text.py."""
        seeds, shape = _split(seed, 3), tf.shape(tokens)
        ranks = tf.argsort(tf.argsort(tf.random.stateless_uniform(shape, seeds[0])))
        chosen = ranks < text.masked_count(tokens.shape[1])
        kind = tf.random.stateless_uniform(shape, seeds[1])
        other = tf.random.stateless_uniform(shape, seeds[2], 0, self.mask, tf.int32)
        masked = tf.where(kind < 0.8, self.mask, tf.where(kind < 0.9, other, tokens))
        return tf.where(chosen, masked, tokens), tf.where(chosen, tokens, text.IGNORED)

    def _records(self, batch, seed, rank, size, first_step):
        """The serialised records of each step, from the shards."""
        shards = self.shards("train")
        paths = tf.constant([str(path) for path, _ in shards])
        counts = tf.constant([count for _, count in shards], tf.int64)
        total = self.records("train")
        start, end = total * rank // size, total * (rank + 1) // size
        skipped = first_step * batch
        first_epoch, left_out = skipped // (end - start), skipped % (end - start)

        def one_epoch(epoch):
            order = tf.random.experimental.stateless_shuffle(
                tf.range(len(shards)), seed=tf.stack([tf.constant(seed, tf.int64), epoch])
            )
            before = tf.cumsum(tf.gather(counts, order), exclusive=True)
            here = tf.gather(counts, order)
            low = tf.clip_by_value(start - before, 0, here)
            high = tf.clip_by_value(end - before, 0, here)
            read = tf.where(high > low)[:, 0]
            parts = tf.data.Dataset.from_tensor_slices(
                tuple(tf.gather(x, read) for x in (tf.gather(paths, order), low, high))
            )
            records = parts.interleave(
                lambda path, low, high: tf.data.TFRecordDataset(path).skip(low).take(high - low),
                cycle_length=SHARDS_AT_ONCE,
                num_parallel_calls=SHARDS_AT_ONCE,
                deterministic=True,
            )
            window = tf.minimum(tf.constant(SHUFFLED_RECORDS, tf.int64), end - start)
            return records.shuffle(
                window, seed=seed * 1_000_003 + epoch, reshuffle_each_iteration=False
            )

        stream = tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(one_epoch)
        return stream.skip(left_out).batch(batch, drop_remainder=True)

    def _parsed(self, records):
        """(inputs, targets) of a batch of serialised records; encoded images stay encoded."""
        if self.encoded:
            image, label = self.keys()
            features = {
                image: tf.io.FixedLenFeature([], tf.string),
                label: tf.io.FixedLenFeature([], tf.int64),
            }
            parsed = tf.io.parse_example(records, features)
            return parsed[image], tf.cast(parsed[label] - self.reader["first_label"], tf.int32)
        shape = self.reader["shape"]
        text, integer = (tf.io.FixedLenFeature([], kind) for kind in (tf.string, tf.int64))
        masked = "mask" in self.reader
        target = "image/mask" if masked else "image/class/label"
        parsed = tf.io.parse_example(
            records, {"image/encoded": text, target: text if masked else integer}
        )
        dtype = tf.as_dtype(self.reader.get("dtype", "uint8"))
        images = tf.reshape(tf.io.decode_raw(parsed["image/encoded"], dtype), (-1, *shape))
        if masked:
            masks = tf.io.decode_raw(parsed[target], tf.uint8)
            return images, tf.reshape(masks, (-1, *self.reader["mask"]))
        return images, tf.cast(parsed[target] - self.reader["first_label"], tf.int32)

    def _augmented(self, images, targets, seed):
        """A batch of windows or small images as they are trained: masked, or shifted at random."""
        if self.mask is not None:
            return self._masked(images, seed)
        if self.augmentation != "shift_flip":
            return images, targets
        height, width, _ = self.item_shape
        places = 2 * SHIFT_PIXELS + 1
        # For the whole batch at once: image by image (tf.map_fn) it took more than 1 % of a small
        # network's step.
        count = 2 * places * places
        drawn = tf.random.stateless_uniform(tf.shape(images)[:1], seed, 0, count, tf.int32)
        top, left = drawn % places, drawn // places % places
        flipped = (drawn // (places * places) == 1)[:, None]
        columns = tf.range(width)[None]
        columns = tf.where(flipped, width - 1 - columns, columns) + left[:, None]
        rows = tf.range(height)[None] + top[:, None]
        pad = [SHIFT_PIXELS] * 2
        padded = tf.pad(images, [[0, 0], pad, pad, [0, 0]])
        moved = tf.gather(padded, rows, axis=1, batch_dims=1)
        moved = tf.gather(moved, columns, axis=2, batch_dims=1)
        return tf.ensure_shape(moved, (None, height, width, images.shape[-1])), targets

    def _cropped(self, encoded, label, seed):
        """A photograph as it is trained: only a random crop is decoded."""
        if self.augmentation != "crop_flip":
            return self._centre(encoded), label
        of_window, of_flip = tf.unstack(_split(seed, 2))
        begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(encoded),
            tf.zeros([1, 0, 4]),
            of_window,
            min_object_covered=0.0,
            aspect_ratio_range=CROP_RATIO,
            area_range=CROP_AREA,
            max_attempts=CROP_ATTEMPTS,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.concat([begin[:2], extent[:2]], axis=0)
        # With the fast transform and plain upsampling, as in tf_cnn_benchmarks.
        image = tf.image.decode_and_crop_jpeg(
            encoded, window, channels=3, fancy_upscaling=False, dct_method="INTEGER_FAST"
        )
        return tf.image.stateless_random_flip_left_right(self._resized(image), of_flip), label

    def _centre(self, encoded):
        """The central part of an image, in the model's proportions; only it is decoded."""
        height, width, _ = self.item_shape
        shape = tf.cast(tf.image.extract_jpeg_shape(encoded)[:2], tf.float32)
        scale = CENTRAL_SHARE * tf.reduce_min(shape / [height, width])
        extent = tf.cast(tf.round(scale * [height, width]), tf.int32)
        begin = (tf.cast(shape, tf.int32) - extent) // 2
        window = tf.concat([begin, extent], axis=0)
        return self._resized(tf.image.decode_and_crop_jpeg(encoded, window, channels=3))

    def _resized(self, image):
        height, width, _ = self.item_shape
        # Bilinear, so within 0 .. 255; the half rounds.
        return tf.cast(tf.image.resize(image, (height, width)) + 0.5, tf.uint8)


def _options(tuned=False, threads=None):
    """The options of a pipeline; None threads: it uses TensorFlow's thread pool.

    Closing an autotuned iterator may take as long as it was used, at most a minute: TensorFlow 2.18
    wakes its tuner before it tells it to end, so that the tuner sleeps again.
    """
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = tuned
    if threads:
        options.threading.private_threadpool_size = threads
    return options


class Source(converted.Source):
    """The items of a run.

    Attributes:
        arguments: of the compiled step; set by `begin`.
        next: called inside the compiled step, returns a batch, (inputs, targets), from `arguments`.
    """

    arguments: tuple[Any, ...]
    next: Callable[..., Any]

    def __init__(self, settings: InputSettings, data_folder: str | None):
        super().__init__(Data, settings, data_folder)
        self._settings = settings
        self._strategy: Base = settings.strategy

    def begin(self, step: int) -> None:
        """Open the stream of the items that follow `step` steps; synthetic ones are on the devices,
        or in the memory of the host if a probe copies them for each step.
        """
        strategy, spec = self._strategy, self._settings.spec
        self.next = next
        if self.data is not None:
            self.arguments = (
                strategy.iterator(lambda rank, size: self._batches(rank, size, step)),
            )
            return
        items = self.synthetic(spec.batch_per_device)
        if self.like and spec.probe == COPIED:
            batch = tuple(np.concatenate([each] * strategy.devices_per_process) for each in items)
            self.arguments = (
                strategy.iterator(lambda *rank: tf.data.Dataset.from_tensors(batch).repeat()),
            )
            return
        scale = tf.identity if self.like else self._settings.scale
        constants = strategy.constants(  # which calls it for each device
            lambda: (scale(tf.constant(items[0])), tf.constant(items[1]))
        )
        if isinstance(constants, tuple):
            self.arguments, self.next = (), lambda: constants
        else:
            self.arguments = (constants,)

    def on_host(self, first_step: int) -> Iterator[Any]:
        """Batches of this process in the memory of the host; not for synthetic items."""
        return iter(self._batches(self._strategy.rank, self._strategy.size, first_step))

    def _batches(self, rank, size, step):
        batch = self._settings.spec.batch_per_device * self._strategy.devices_per_process
        return self.data.training_batches(batch, self.seed, rank, size, step)
