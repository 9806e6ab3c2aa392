"""What watching others costs, and how well it tells a busy machine from a quiet one.

    uv run python -m tests.performance.machine.neighbours [--readings 500]
    uv run python -m tests.performance.machine.neighbours --runs 100    # alone: 20 minutes

Prints microseconds of CPU per reading, from interleaved rounds in one process, and the per cent
of a core at 1 Hz (target: under 0.1). With --runs, so many real runs (LeNet-5, 400 steps on one
core) of each kind in turn: alone, and beside a process that uses a share of a core; and of each
kind how many were called disturbed (target: none alone, 95 % beside 10 % of a core), with what the
others used. Needs envs/train for the runs (dlbench environment).
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dlbench.starting.neighbours import Watch
from dlbench.study.runs import Run

from .. import bench

ROUNDS = 10
PERIOD_S = 0.2
NEIGHBOUR = """
import sys, time
share, period_s = map(float, sys.argv[1:])
while True:
    began = time.monotonic()
    before = time.process_time()
    while time.process_time() - before < share * period_s: pass
    time.sleep(max(0, began + period_s - time.monotonic()))
"""
RUN = Run(model="lenet5", dataset="synthetic", batch_per_device=64, warmup_steps=50, steps=400)


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--readings", type=int, default=500)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.1, help="of a core, of the neighbour")
    args = parser.parse_args()
    figures = bench.Figures(args.json)
    cost(figures, args.readings)
    if args.runs:
        tell_apart(figures, args.runs, args.share)


def cost(figures, readings):
    watch, spent_us = Watch(share=0.05, device_cores=1), []
    for _ in range(ROUNDS):
        before = time.thread_time()
        for _ in range(readings // ROUNDS):
            watch._read()
        spent_us.append((time.thread_time() - before) * 1e6 / (readings // ROUNDS))
    figures.add("CPU time of a reading", spent_us, "us")
    percent = [us / 1e4 for us in spent_us]
    figures.add("watching at 1 Hz", percent, "% of a core", at_most=0.1)


def tell_apart(figures, count, share):
    found = {"alone": [], f"beside {share:.0%} of a core": []}
    for number in range(count):
        for kind, summaries in found.items():
            summaries.append(summary(0 if kind == "alone" else share))
            said = summaries[-1]["disturbed"] or "quiet"
            print(f"{number + 1}/{count} {kind}: {said}", file=sys.stderr, flush=True)
    targets = ({"at_most": 0}, {"at_least": 0.95})
    for (kind, summaries), target in zip(found.items(), targets, strict=True):
        called = sum(bool(summary["disturbed"]) for summary in summaries) / count
        used = [summary["others_cpu_cores"] for summary in summaries]
        figures.add(f"share of {count} runs called disturbed, {kind}", called, **target)
        figures.add(f"what others used, {kind}", used, "cores")


def summary(share):
    """That of the record of a run beside a process that uses a share of a core; 0: alone."""
    neighbour = None
    if share:
        line = [sys.executable, "-S", "-c", NEIGHBOUR, str(share), str(PERIOD_S)]
        neighbour = subprocess.Popen(line)
    try:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "train.jsonl"
            trainer = [bench.TRAINER, "workflow_scripts/train.py", *RUN.flags(), "--log", log]
            subprocess.run(
                [
                    sys.executable,
                    "workflow_scripts/start_run.py",
                    "--log",
                    log,
                    "--messages",
                    log.with_name("messages"),
                    f"--spec={json.dumps(RUN.values())}",
                    "--others-share=0.05",
                    "--",
                    *trainer,
                ],
                cwd=bench.REPOSITORY,
                check=True,
                stderr=subprocess.DEVNULL,
            )
            return json.loads(log.with_name("run.json").read_text())["summary"]
    finally:
        if neighbour:
            neighbour.kill()
            neighbour.wait()


if __name__ == "__main__":
    main()
