"""What our way of starting a container adds to the runtime's own command.

Ours is what starts a run: binds, the image's variables, the host's hidden from the program.
Beside it the runtime's shortest command line that runs the same program in the same image. Both
are started in turns; printed are milliseconds of both and the differences of pairs.

    uv run python -m tests.performance.workflow.containers results/images/train/apptainer.json

in the workflow's folder, for images that are prepared (target images).
"""

import os
from pathlib import Path

from dlbench.images import trainer_image
from dlbench.images.runtimes import udocker
from dlbench.starting import start_command
from dlbench.study.runs import Run

from .. import bench

SHORTEST = {
    "apptainer": lambda image: ["apptainer", "--silent", "exec", image],
    "podman": lambda image: ["podman", "run", "--rm", image],
    "charliecloud": lambda image: ["ch-run", image, "--"],
}


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("forms", nargs="+", type=Path, help="as prepare_image.py wrote them")
    parser.add_argument("--pairs", type=int, default=40)
    args = parser.parse_args()
    figures = bench.Figures(args.json)
    for path in args.forms:
        own, ours = commands(trainer_image.read_form(path))
        calls = {"own": lambda own=own: start_ms(own), "ours": lambda ours=ours: start_ms(ours)}
        bench.in_turns(2, calls)  # whatever the first starts load
        taken = bench.in_turns(args.pairs, calls)
        added = [b - a for a, b in zip(taken["own"], taken["ours"], strict=True)]
        figures.add(f"{path.stem}, its own shortest start", taken["own"], "ms")
        figures.add(f"{path.stem}, what our command line adds", added, "ms")


def start_ms(command):
    return 1e3 * bench.run(command).wall_s


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
        folders = [f"{key}={form['prepared']}/{name}" for key, name in udocker.FOLDERS.items()]
        words = ["--allow-root"] if os.geteuid() == 0 else []
        return ["env", *folders, "udocker", *words, "run", "--nobanner", "dlbench", "true"], ours
    return [*SHORTEST[form["runtime"]](form["prepared"]), "true"], ours


if __name__ == "__main__":
    main()
