"""Reading photographs at 224x224, beside the rate at which libjpeg-turbo decodes them whole.

    uv run python workflow_scripts/make_environment.py envs/train --group test
    envs/train/.venv/bin/python tests/performance/reading.py

Prints images per CPU-second of the training pipeline (fused decode and crop,
resize, flip, uint8 batches of 64) over those of simplejpeg's full decode, the
median of interleaved rounds. The target is 0.90.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "workflow_scripts"))

import numpy as np  # noqa: E402
import simplejpeg  # noqa: E402
import tensorflow as tf  # noqa: E402

from dlbench.trainer.tensorflow.pipelines import Data  # noqa: E402

IMAGES, BATCH = 640, 64


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        photographs = [photograph(number) for number in range(IMAGES)]
        size_bytes = statistics.mean(map(len, photographs))
        print(f"{IMAGES} JPEGs of 500x375, {size_bytes / 1000:.0f} kB each", flush=True)
        write(Path(folder), photographs)
        batches = Data(folder, (224, 224, 3)).training_batches(BATCH, seed=1)
        # An end, so that nothing is read ahead while the other side is measured.
        batches = batches.take(IMAGES // BATCH)
        ours(batches)
        rates = [(ours(batches), theirs(photographs)) for _ in range(args.rounds)]
    ratio = statistics.median(a / b for a, b in rates)
    our_rate, their_rate = (statistics.median(side) for side in zip(*rates, strict=True))
    print(
        f"{our_rate:.0f} images per CPU-second beside {their_rate:.0f} of a full decode, "
        f"ratio {ratio:.2f}"
    )


def photograph(number):
    """A JPEG of about 110 kB, 500x375, as ImageNet's are."""
    random = np.random.default_rng(number)
    coarse = tf.image.resize(random.integers(0, 256, (75, 100, 3)), (375, 500), "bicubic").numpy()
    pixels = np.clip(coarse + random.normal(0, 14, coarse.shape), 0, 255).astype(np.uint8)
    return simplejpeg.encode_jpeg(pixels, quality=90, colorsubsampling="420")


def write(folder, photographs):
    def feature(value):
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    path = folder / "train-00000-of-00001"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number, content in enumerate(photographs):
            features = {"image/encoded": content, "image/class/label": number % 1000 + 1}
            named = {name: feature(value) for name, value in features.items()}
            example = tf.train.Example(features=tf.train.Features(feature=named))
            writer.write(example.SerializeToString())
    shard = {"file": path.name, "records": IMAGES, "bytes": path.stat().st_size}
    reader = {"encoding": "jpeg", "classes": 1000, "first_label": 1, "augmentation": "crop_flip"}
    splits = {"train": {"records": IMAGES, "shards": [shard]}}
    manifest = {"dataset": "test", "kind": "image", "reader": reader, "splits": splits}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def ours(batches):
    before = cpu_s()
    for _ in batches:
        pass
    return IMAGES / (cpu_s() - before)


def theirs(photographs):
    before = cpu_s()
    for content in photographs:
        simplejpeg.decode_jpeg(content)
    return IMAGES / (cpu_s() - before)


def cpu_s():
    """Of all threads of this process."""
    times = os.times()
    return times.user + times.system


if __name__ == "__main__":
    main()
