"""What our way of starting a container adds to the runtime's own command.

Ours is what starts a run: binds, the image's variables, the host's hidden from the program.
Beside it the runtime's shortest command line that runs the same program in the same image. Both
are started in turns, in random order; printed are the medians and their difference in
milliseconds, with the quartiles over pairs.

    uv run python tests/performance/containers.py results/images/train/apptainer.json

in the workflow's folder, for images that are prepared (target images).
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "workflow_scripts"))

from dlbench.images import trainer_image
from dlbench.images.runtimes import udocker
from dlbench.starting import start_command
from dlbench.study.runs import Run

SHORTEST = {
    "apptainer": lambda image: ["apptainer", "--silent", "exec", image],
    "podman": lambda image: ["podman", "run", "--rm", image],
    "charliecloud": lambda image: ["ch-run", image, "--"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("forms", nargs="+", type=Path, help="as prepare_image.py wrote them")
    parser.add_argument("--pairs", type=int, default=40)
    args = parser.parse_args()
    print(f"{'form':14} {'own, ms':>9} {'ours, ms':>9} {'added, ms':>10}   quartiles")
    for path in args.forms:
        own, ours = commands(trainer_image.read_form(path))
        pairs = [pair(own, ours) for _ in range(args.pairs + 2)][2:]
        added = [1e3 * (b - a) for a, b in pairs]
        low, middle, high = statistics.quantiles(added, n=4)
        a, b = (1e3 * statistics.median(times) for times in zip(*pairs, strict=True))
        print(f"{path.stem:14} {a:9.1f} {b:9.1f} {middle:10.1f}   {low:.1f} .. {high:.1f}")


def commands(form):
    """(the runtime's own command, ours), both of which run `true` in the image."""
    chosen = {"start": "command"} if form["runtime"] == "apptainer" else form["options"]
    words = ",".join(f"{key}={value}" for key, value in chosen.items())
    run = Run(
        model="lenet5",
        dataset="synthetic",
        batch_per_device=1,
        runtime=form["runtime"],
        runtime_options=words,
    )
    form = {**form, "python": "true"}
    ours = list(start_command.build(run, ["python"], form).command)
    if form["runtime"] == "udocker":
        folders = [f"{key}={form['prepared']}/{name}" for key, name in udocker.PLACES.items()]
        words = ["--allow-root"] if os.geteuid() == 0 else []
        return ["env", *folders, "udocker", *words, "run", "--nobanner", "dlbench", "true"], ours
    return [*SHORTEST[form["runtime"]](form["prepared"]), "true"], ours


def pair(own, ours):
    """Seconds that each of two commands takes, started in random order."""
    order = [0, 1]
    random.shuffle(order)
    spent = [0.0, 0.0]
    for index in order:
        began = time.perf_counter()
        done = subprocess.run((own, ours)[index], capture_output=True, text=True, check=False)
        spent[index] = time.perf_counter() - began
        if done.returncode:
            sys.exit(f"{(own, ours)[index]}: {json.dumps(done.stdout + done.stderr)}")
    return spent


if __name__ == "__main__":
    main()
