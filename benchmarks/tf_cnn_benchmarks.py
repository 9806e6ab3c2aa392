"""Our trainer beside tf_cnn_benchmarks on the same model, batch, threads and precision.

    git clone https://github.com/tensorflow/benchmarks CHECKOUT
    uv run --group dev python -m benchmarks tf_cnn_benchmarks -- CHECKOUT --python PYTHON

PYTHON is one with the TensorFlow of envs/train and tf_keras (the Keras that
tf_cnn_benchmarks was written for), as made by

    uv venv peer && uv pip install --python peer tensorflow-cpu==2.18.1 tf_keras==2.18.0 \\
        "setuptools<81"

Both run in turns, with synthetic images and plain SGD, each on as many cores as it has threads. The
target of the ratio of images per second is 1.
"""

import os
import re
from pathlib import Path

from dlbench.study.runs import Run

from . import measuring, two_processes

WARMUP_STEPS = 3


def main():
    parser = measuring.parser(__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--python", required=True)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    rates = measuring.in_turns(
        args.rounds, {"ours": lambda: ours(args), "theirs": lambda: theirs(args)}
    )
    figures = measuring.Figures(args.json)
    of = f"{args.model}, batch {args.batch}, {args.threads} threads"
    figures.add(f"{of}, throughput", rates["ours"], "images/s")
    ratios = measuring.ratios(rates["ours"], rates["theirs"])
    figures.add(f"{of}, over tf_cnn_benchmarks'", ratios, at_least=1)


def ours(args):
    run = Run(
        model=args.model,
        dataset="synthetic",
        batch_per_device=args.batch,
        steps=args.steps,
        warmup_steps=WARMUP_STEPS,
        threads_per_device=args.threads,
    )
    return two_processes.images_per_second(run)


def theirs(args):
    script = args.checkout / "scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py"
    command = [
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
    ]
    environment = os.environ | {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    output = measuring.run(command, env=environment).output
    return float(re.search(r"total images/sec: ([\d.]+)", output)[1])


if __name__ == "__main__":
    main()
