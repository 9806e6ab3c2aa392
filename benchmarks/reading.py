"""Reading photographs at 224x224, beside the rates at which decoders decode them whole.

Measured are images per CPU-second of the training pipeline (fused decode and crop,
resize, flip, uint8 batches of 64) over those of whole decodes alone, in
interleaved rounds: by TensorFlow's operation, which the pipeline's is a variant
of, and by simplejpeg, the fastest decoder known to us. The target: what the
pipeline does around decoding costs no more than the crop saves, so at least
TensorFlow's rate.
"""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import simplejpeg
import tensorflow as tf

from dlbench.trainer.tensorflow.pipelines import Data
from support.trainers.shards import dataset

from . import measuring

BATCH = 64


def main():
    parser = measuring.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--images", type=int, default=640, help="some batches of 64")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        photographs = [photograph(number) for number in range(args.images)]
        batches = Data(write(Path(folder) / "data", photographs), (224, 224, 3)).training_batches(
            BATCH, seed=1
        )
        # An end, so that nothing is read ahead while the other side is measured.
        batches = batches.take(args.images // BATCH)
        ours(batches)
        tensorflow = tf.function(
            lambda content: tf.io.decode_jpeg(content, channels=3),
            input_signature=[tf.TensorSpec([], tf.string)],
        )
        calls = {
            "ours": lambda: ours(batches),
            "tensorflow": lambda: whole(tensorflow, photographs),
            "simplejpeg": lambda: whole(simplejpeg.decode_jpeg, photographs),
        }
        rates = measuring.in_turns(args.rounds, calls)
    figures = measuring.Figures(args.json)
    figures.add("images read and cropped", rates["ours"], "a CPU-second")
    for decoder, least in (("TensorFlow", 1.0), ("simplejpeg", None)):
        ratios = measuring.ratios(rates["ours"], rates[decoder.lower()])
        figures.add(f"the same over whole decodes by {decoder}", ratios, at_least=least)


def photograph(number):
    """A JPEG of about 110 kB, 500x375, as ImageNet's are."""
    random = np.random.default_rng(number)
    coarse = tf.image.resize(random.integers(0, 256, (75, 100, 3)), (375, 500), "bicubic").numpy()
    pixels = np.clip(coarse + random.normal(0, 14, coarse.shape), 0, 255).astype(np.uint8)
    return simplejpeg.encode_jpeg(pixels, quality=90, colorsubsampling="420")


def write(folder, photographs):
    reader = {"encoding": "jpeg", "classes": 1000, "first_label": 1, "augmentation": "crop_flip"}

    def features(index):
        return {"image/encoded": photographs[index], "image/class/label": index % 1000 + 1}

    return dataset(folder, len(photographs), 1, reader, features)


def ours(batches):
    before, images = cpu_s(), 0
    for _ in batches:
        images += BATCH
    return images / (cpu_s() - before)


def whole(decode, photographs):
    before = cpu_s()
    for content in photographs:
        decode(content)
    return len(photographs) / (cpu_s() - before)


def cpu_s():
    """Of all threads of this process."""
    times = os.times()
    return times.user + times.system


if __name__ == "__main__":
    main()
