"""Conversion of an ImageNet-like tar of tars, beside decoding each image and beside `cp`.

    uv run python -m tests.performance.data.conversion [--images 2000]

Prints, from interleaved rounds in one run:
- images per CPU-second, ours against a converter that decodes each image with
  TensorFlow and writes with its TFRecordWriter (target: at least 4 times);
- bytes per second with one worker a core against `cp` of the same tar in page
  cache (target: at least 0.35);
- the peak memory of a worker (target: under 150 MB).
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.io
from PIL import Image

from dlbench.data.archives import tar_index
from dlbench.data.datasets import imagenet

from .. import bench

CLASSES = 20
DECODING = """
import io, json, sys, tarfile, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
start = os.times()
def feature(value):
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
with tarfile.open(sys.argv[1]) as outer, tf.io.TFRecordWriter(sys.argv[2]) as writer:
    for label, member in enumerate(outer, start=1):
        with tarfile.open(fileobj=outer.extractfile(member)) as inner:
            for image in inner:
                content = inner.extractfile(image).read()
                height, width, channels = tf.io.decode_jpeg(content, channels=3).shape
                features = {"image/encoded": feature(content), "image/height": feature(height),
                            "image/width": feature(width), "image/channels": feature(channels),
                            "image/class/label": feature(label),
                            "image/filename": feature(image.name.encode())}
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
end = os.times()
print(end.user + end.system - start.user - start.system)
"""


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        size_bytes = generate(folder, args.images)
        print(f"{args.images} JPEGs, {size_bytes / args.images / 1000:.0f} kB each", flush=True)
        cores = len(os.sched_getaffinity(0))
        calls = {
            "ours": lambda: ours(folder, 1),
            "decoding": lambda: decoding(folder),
            "cp": lambda: copying(folder),
            "ours on all cores": lambda: ours(folder, cores),
        }
        taken = bench.in_turns(args.rounds, calls)
    cpu_s, _, peak_mb = zip(*taken["ours"], strict=True)
    _, wall_s, _ = zip(*taken["ours on all cores"], strict=True)
    figures = bench.Figures(args.json)
    figures.add("images", [args.images / s for s in cpu_s], "a CPU-second")
    faster = bench.ratios(taken["decoding"], cpu_s)
    figures.add("images a CPU-second over those of decoding each", faster, at_least=4)
    rates = [size_bytes / 1e6 / s for s in wall_s]
    figures.add(f"speed with {cores} workers", rates, "MB/s")
    figures.add("the same over cp's", bench.ratios(taken["cp"], wall_s), at_least=0.35)
    figures.add("memory of a worker", peak_mb, "MB", at_most=150)


def generate(folder, images):
    """Write archives of the published layout. Returns the bytes of the training tar."""
    random = np.random.default_rng(1)
    rows = np.zeros(
        CLASSES, dtype=[(k, object) for k in ("ILSVRC2012_ID", "WNID", "words", "num_children")]
    )
    train = folder / "ILSVRC2012_img_train.tar"
    with tarfile.open(train, "w") as outer:
        for number in range(CLASSES):
            synset = f"n{number:08d}"
            rows[number] = (number + 1, synset, synset, 0)
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as archive:
                for image in range(images // CLASSES):
                    add(archive, f"{synset}_{image}.JPEG", photograph(random))
            add(outer, f"{synset}.tar", inner.getvalue())
    with tarfile.open(folder / "ILSVRC2012_img_val.tar", "w") as archive:
        add(archive, "ILSVRC2012_val_00000001.JPEG", photograph(random))
    meta = io.BytesIO()
    scipy.io.savemat(meta, {"synsets": rows})
    with tarfile.open(folder / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as archive:
        add(archive, imagenet.KIT + "meta.mat", meta.getvalue())
        add(archive, imagenet.KIT + "ILSVRC2012_validation_ground_truth.txt", b"1\n")
    return train.stat().st_size


def photograph(random):
    """A JPEG of about 110 kB, 500x375, as ImageNet's are."""
    coarse = random.integers(0, 256, (75, 100, 3), np.uint8)
    image = Image.fromarray(coarse).resize((500, 375), Image.BICUBIC)
    grain = random.normal(0, 14, (375, 500, 3))
    image = Image.fromarray(np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8))
    content = io.BytesIO()
    image.save(content, "JPEG", quality=90)
    return content.getvalue()


def add(archive, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


OURS = f"""
import json, os, resource, sys
import scipy.io  # as TensorFlow on the other side, not counted
sys.path.insert(0, {str(bench.REPOSITORY / "workflow_scripts")!r})
from pathlib import Path
from dlbench.data import convert_dataset
from dlbench.data.datasets import imagenet
images, folder, output, workers = int(sys.argv[1]), *map(Path, sys.argv[2:4]), int(sys.argv[4])
imagenet.SPLITS = {{"train": images, "validation": 1}}
imagenet.SHARDS = {{"train": 16, "validation": 1}}
imagenet.FILES = {{name: {{"sha256": "0"}} for name in imagenet.FILES}}
start = os.times()
convert_dataset.convert("imagenet", folder, output, workers=workers)
end = os.times()
used = sum(end[:4]) - sum(start[:4])
peak = max(resource.getrusage(who).ru_maxrss for who in (0, -1))
print(json.dumps([used, end.elapsed - start.elapsed, peak / 1000]))
"""


def ours(folder, workers):
    """(CPU seconds, seconds, MB of the largest process) of a conversion."""
    images = sum(1 for _ in imagenet_members(folder))
    with tempfile.TemporaryDirectory(dir=folder) as output:
        finished = subprocess.run(
            [sys.executable, "-c", OURS, str(images), folder, f"{output}/made", str(workers)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    return json.loads(finished.stdout)


def imagenet_members(folder):
    path = folder / "ILSVRC2012_img_train.tar"
    for _, offset, size in tar_index(path):
        yield from tar_index(path, offset, offset + size)


def decoding(folder):
    finished = subprocess.run(
        [bench.TRAINER, "-c", DECODING, folder / "ILSVRC2012_img_train.tar", folder / "theirs"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return float(finished.stdout)


def copying(folder):
    before = time.perf_counter()
    subprocess.run(["cp", folder / "ILSVRC2012_img_train.tar", folder / "copy"], check=True)
    return time.perf_counter() - before


if __name__ == "__main__":
    main()
