"""Converted datasets for the tests of the trainer, written by TensorFlow itself."""

import json

import tensorflow as tf


def dataset(folder, records, shards, reader, features, kind="image"):
    """A converted dataset of `records` items in each split."""
    folder.mkdir()
    splits = {}
    for split in ("train", "validation"):
        described = []
        for shard in range(shards):
            indices = range(records * shard // shards, records * (shard + 1) // shards)
            path = folder / f"{split}-{shard:05d}-of-{shards:05d}"
            with tf.io.TFRecordWriter(str(path)) as writer:
                for index in indices:
                    writer.write(example(features(index)))
            described.append(
                {"file": path.name, "records": len(indices), "bytes": path.stat().st_size,
                 "sha256": None}
            )  # fmt: skip
        splits[split] = {"records": records, "shards": described}
    manifest = {"dataset": "test", "kind": kind, "reader": reader, "splits": splits}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def numbered(folder, shards):
    """A converted dataset of 101 images of one pixel, whose value and label are its number."""
    reader = {"encoding": "raw", "shape": [1, 1, 1], "classes": 101, "first_label": 0}
    return dataset(
        folder,
        101,
        shards,
        reader,
        lambda index: {"image/encoded": bytes([index]), "image/class/label": index},
    )


def example(features):
    def feature(value):
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        values = value if isinstance(value, list) else [value]
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    named = {name: feature(value) for name, value in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=named)).SerializeToString()
