"""Training on real data beside synthetic data, on a model that is bound by its computation.

    uv run dlbench environment envs/train    # and envs/jax, envs/pytorch
    envs/train/.venv/bin/python -m tests.performance.data.real_data [--framework NAME ...]

Under each framework whose environment is installed, or those named, runs the trainer in turns on
CIFAR-10's layout (50 000 images of 32x32 in shards, shifted and mirrored as published), kept in
memory and read anew in each epoch, and on synthetic images of that shape, on one core. Prints
ratios of images per second; the target is 0.97.
"""

import functools
import random
import tempfile
from pathlib import Path

from dlbench.trainer import engine
from support.trainers.shards import dataset

from .. import bench
from ..bench import launched

SHARDS = 8


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=50_000, help="of the dataset")
    parser.add_argument("--framework", choices=engine.names(), action="append")
    args = parser.parse_args()
    figures = bench.Figures(args.json)
    with tempfile.TemporaryDirectory() as folder:
        data = stored(Path(folder) / "data", args.records)
        for framework in args.framework or engine.names():
            if bench.python_of(framework).exists():
                compare(figures, args, framework, data)
            else:
                print(f"{framework}: left out, its environment is not installed")


def compare(figures, args, framework, data):
    """Add the ratios of one framework."""
    run_of = functools.partial(
        launched.run_of, args, framework=framework, environment=engine.environment(framework)
    )
    runs = {
        "from memory": (run_of(dataset="cifar10", cache="auto"), "--data", data),
        "read anew": (run_of(dataset="cifar10", cache="none"), "--data", data),
        "synthetic": (run_of(),),
    }
    calls = {
        name: functools.partial(launched.images_per_second, *how) for name, how in runs.items()
    }
    rates = bench.in_turns(args.rounds, calls)
    for name in ("from memory", "read anew"):
        ratios = bench.ratios(rates[name], rates["synthetic"])
        of = f"{framework}: {args.model}, batch {args.batch}"
        figures.add(f"{of}, CIFAR-10 {name} over synthetic items", ratios, at_least=0.97)


def stored(folder, records):
    """A dataset of CIFAR-10's layout; what is on the images costs nothing."""
    noise = random.Random(1)
    reader = {"encoding": "raw", "shape": [32, 32, 3], "classes": 10, "first_label": 0,
              "augmentation": "shift_flip"}  # fmt: skip
    return dataset(
        folder,
        records,
        SHARDS,
        reader,
        lambda index: {"image/encoded": noise.randbytes(3072), "image/class/label": [index % 10]},
    )


if __name__ == "__main__":
    main()
