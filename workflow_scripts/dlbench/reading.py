"""tf.data pipelines over the TFRecord shards of a dataset.

- The order is a shuffle of the whole split, new in each epoch, fixed by the seed.
- Ranks take turns in that order, so one global batch holds the same items
  however many processes share it.
- An epoch is a whole number of global batches; the rest of a pass, drawn anew
  each epoch, is left out, alike on all ranks.
- Images are handed over as uint8; the step scales them.
"""

import json
from pathlib import Path

import tensorflow as tf

from dlbench import Error


class Data:
    """A converted dataset, opened by its manifest.

    Attributes:
        image_shape: (height, width, channels).
        classes: labels are 0 .. classes - 1.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        path = self.folder / "manifest.json"
        try:
            self.manifest = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise Error(
                f"{path} cannot be read ({error.strerror}): --data must name the folder of a "
                "converted dataset; convert_dataset.py makes one"
            ) from error
        self.image_shape = tuple(self.manifest["image_shape"])
        self.classes = self.manifest["classes"]

    def records(self, split):
        return self.manifest["splits"][split]["records"]

    def training_batches(self, batch, seed, rank=0, size=1):
        """Endless batches of (images, labels) for one of `size` processes.

        Args:
            batch: items per step of this process.

        Returns:
            The dataset, and the number of steps in an epoch.

        Raises:
            Error: the split has fewer items than one global batch.
        """
        records = self.records("train")
        steps_per_epoch = records // (batch * size)
        if steps_per_epoch == 0:
            raise Error(
                f"{self.folder.name} has {records} training records, fewer than one global "
                f"batch of {batch * size}: choose a smaller batch_per_device or fewer devices"
            )
        batches = (
            self._serialised("train")
            .cache()
            .shuffle(records, seed=seed, reshuffle_each_iteration=True)
            .shard(size, rank)
            .batch(batch, drop_remainder=True)
            .take(steps_per_epoch)
            .repeat()
            .map(self._decode, num_parallel_calls=1, deterministic=True)
            .prefetch(tf.data.AUTOTUNE)
        )
        return batches, steps_per_epoch

    def validation_batches(self, batch):
        """All held-out items once, in the order of the shards; the last batch may be smaller."""
        return self._serialised("validation").batch(batch).map(self._decode).prefetch(2)

    def _serialised(self, split):
        shards = self.manifest["splits"][split]["shards"]
        files = [str(self.folder / shard["file"]) for shard in shards]
        missing = [file for file in files if not Path(file).is_file()]
        if missing:
            raise Error(
                f"missing shards: {', '.join(missing)}; the rule convert_dataset makes them: "
                f"delete {self.folder / 'manifest.json'} and run the workflow again"
            )
        return tf.data.TFRecordDataset(files)

    def _decode(self, serialised):
        parsed = tf.io.parse_example(
            serialised,
            {
                "image/encoded": tf.io.FixedLenFeature([], tf.string),
                "image/class/label": tf.io.FixedLenFeature([], tf.int64),
            },
        )
        pixels = tf.io.decode_raw(parsed["image/encoded"], tf.uint8)
        images = tf.reshape(pixels, (-1, *self.image_shape))
        return images, tf.cast(parsed["image/class/label"], tf.int32)
