"""Our trainer beside tf_cnn_benchmarks on the same model, batch, threads and precision.

    git clone https://github.com/tensorflow/benchmarks CHECKOUT
    envs/train/.venv/bin/python tests/performance/tf_cnn_benchmarks.py CHECKOUT --python PYTHON

PYTHON is one with the TensorFlow of envs/train and tf_keras (the Keras that
tf_cnn_benchmarks was written for), as made by

    uv venv peer && uv pip install --python peer tensorflow-cpu==2.18.1 tf_keras==2.18.0 \\
        "setuptools<81"

Runs both in turn, synthetic images and plain SGD, each on as many cores as it
has threads. Prints the ratio of the medians of images per second; the target is 1.0.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "workflow_scripts"))

from dlbench.log import event_log  # noqa: E402

WARMUP_STEPS = 3


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--python", required=True)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    mine, peers = [], []
    for number in range(args.rounds):
        for rates, measure in [(mine, ours), (peers, theirs)][:: 1 if number % 2 else -1]:
            rates.append(measure(args))
    ratio = statistics.median(mine) / statistics.median(peers)
    print(
        f"{args.model} batch {args.batch}, {args.threads} threads: "
        f"{statistics.median(mine):.2f} images/s beside {statistics.median(peers):.2f} of "
        f"tf_cnn_benchmarks, ratio {ratio:.3f} ({args.rounds} rounds)"
    )


def ours(args):
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        call(
            sys.executable,
            REPOSITORY / "workflow_scripts/train.py",
            "--model",
            args.model,
            "--dataset",
            "synthetic",
            "--batch-per-device",
            args.batch,
            "--steps",
            args.steps,
            "--warmup-steps",
            WARMUP_STEPS,
            "--threads-per-device",
            args.threads,
            "--log",
            log,
        )
        times = [e["step_time_s"] for e in event_log.read(log) if e["event"] == "step"]
    return args.batch * args.steps / sum(times[WARMUP_STEPS:])


def theirs(args):
    script = args.checkout / "scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py"
    output = call(
        args.python,
        script,
        f"--model={args.model}",
        f"--batch_size={args.batch}",
        f"--num_batches={args.steps}",
        f"--num_warmup_batches={WARMUP_STEPS}",
        "--device=cpu",
        "--local_parameter_device=cpu",
        "--data_format=NHWC",
        "--optimizer=sgd",
        "--weight_decay=0",
        f"--num_intra_threads={args.threads}",
        "--num_inter_threads=1",
        "--kmp_blocktime=0",
        "--display_every=1000",
    )
    return float(re.search(r"total images/sec: ([\d.]+)", output)[1])


def call(*command):
    environment = os.environ | {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout + done.stderr


if __name__ == "__main__":
    main()
