"""Training on real data beside synthetic data, on a model that is bound by its computation.

    uv run python workflow_scripts/make_environment.py envs/train
    envs/train/.venv/bin/python tests/performance/real_data.py

Runs the trainer in random order on CIFAR-10's layout (50 000 images of 32x32 in
shards, shifted and mirrored as published) and on synthetic images of that
shape, on one core. Prints the ratio of the medians of images per second; the target is 0.97.
"""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [str(REPOSITORY / "workflow_scripts"), str(REPOSITORY / "tests/support")]

from dlbench.log import event_log  # noqa: E402

RECORDS, SHARDS, WARMUP_STEPS = 50_000, 8, 5


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cache", default="auto", choices=["auto", "none"])
    args = parser.parse_args()
    rates = {"cifar10": [], "synthetic": []}
    with tempfile.TemporaryDirectory() as folder:
        data = stored(Path(folder) / "data")
        for number in range(args.rounds):
            for name in random.Random(number).sample(list(rates), 2):
                rates[name].append(images_per_second(name, data, Path(folder) / "log", args))
    real, synthetic = (statistics.median(values) for values in rates.values())
    print(
        f"{args.model} batch {args.batch}, cache {args.cache}: {real:.1f} images/s on real data, "
        f"{synthetic:.1f} on synthetic, ratio {real / synthetic:.3f} ({args.rounds} rounds)"
    )


def stored(folder):
    """A dataset of CIFAR-10's size and layout; what is on the images costs nothing."""
    from shards import dataset

    noise = random.Random(1)
    reader = {"encoding": "raw", "shape": [32, 32, 3], "classes": 10, "first_label": 0,
              "augmentation": "shift_flip"}  # fmt: skip
    return dataset(
        folder,
        RECORDS,
        SHARDS,
        reader,
        lambda index: {"image/encoded": noise.randbytes(3072), "image/class/label": [index % 10]},
    )


def images_per_second(name, data, log, args):
    command = [
        sys.executable, "workflow_scripts/train.py", "--model", args.model, "--dataset", name,
        "--batch-per-device", str(args.batch), "--steps", str(args.steps),
        "--warmup-steps", str(WARMUP_STEPS), "--cache", args.cache, "--log", str(log),
    ]  # fmt: skip
    command += ["--data", str(data)] if name != "synthetic" else []
    subprocess.run(command, cwd=REPOSITORY, check=True, stderr=subprocess.DEVNULL)
    times = [e["step_time_s"] for e in event_log.read(log) if e["event"] == "step"]
    log.unlink()
    return args.batch * args.steps / sum(times[WARMUP_STEPS:])


if __name__ == "__main__":
    main()
