"""What all figures of 2 000 runs take: seconds of each, in all, and as the workflow draws them.

    uv run python -m tests.performance.results.figures [--runs 2000] [--steps 1000]

The tables are made up: two models in weak scaling, a batch sweep and a sweep that learns, five
repeats each, every run with its steps and samples. Each figure is drawn by a process of its own,
first one after the other, then as many at once as there are cores. The target, for the second:
under 60 s.
"""

import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dlbench.common import plugins
from support.results import made_tables

from .. import bench

TARGET_S = 60


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--draw", nargs="+", metavar="FIGURE", help="these only")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        rows = study()[: args.runs]
        made_tables.write(folder, rows, steps_each=args.steps)
        names = args.draw or plugins.names("figures")
        taken = {name: seconds(name, folder) for name in names}
        begun = time.monotonic()
        with ThreadPoolExecutor(os.cpu_count()) as at_once:
            list(at_once.map(lambda name: seconds(name, folder), names))
        wall = time.monotonic() - begun
    for name, spent in sorted(taken.items(), key=lambda item: -item[1]):
        print(f"{name:<20} {spent:6.2f} s")
    of = f"of {len(rows)} runs, {args.steps} steps each"
    figures = bench.Figures(args.json)
    which = " and ".join(args.draw) if args.draw else "all figures"
    figures.add(f"{which} {of}, one after the other", sum(taken.values()), "s")
    figures.add(f"{which} {of}, one a core", wall, "s", at_most=TARGET_S)


def study():
    """2 000 runs, about a quarter of them for epochs."""
    wide = {"precision": ["float32", "float16"], "xla": [False, True], "repeats": 5}
    scaling = made_tables.study(
        devices=[1, 2, 4, 8, 16],
        model=["resnet50", "vgg16"],
        dataset=["synthetic", "imagenet"],
        batch_per_device=[32, 64],
        **wide,
    )
    batches = made_tables.study(
        batch_per_device=[16, 32, 64, 128, 256],
        model=["alexnet", "lenet5"],
        strategy="single",
        mode=["train", "forward", "forward_backward"],
        **wide,
    )
    learning = made_tables.learning(
        devices=[1, 2, 4, 8], learning_rate=[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0], **wide
    )
    return made_tables.with_energy([*scaling, *batches, *learning])


def seconds(name, folder):
    """As the workflow draws it: a process for each, Python and its libraries included."""
    command = [sys.executable, "workflow_scripts/draw_figure.py", name, f"--tables={folder}",
               f"--runs={folder / 'runs'}", f"--output={folder / 'figures'}"]  # fmt: skip
    return bench.run(command, cwd=bench.REPOSITORY).wall_s


if __name__ == "__main__":
    main()
