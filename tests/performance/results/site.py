"""How long the website of a history takes to make and to open, and how large it is.

    uv run python -m tests.performance.results.site [--campaigns 200] [--machines 10]

The campaigns are those of history.py beside it, of 50 conditions. Each page is opened in headless
Chromium, which must be installed, until the end of its load event. The targets of 200 campaigns:
under 50 MB, each page under 2 s.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from dlbench.history import dataset
from support.results import chromium

from .. import bench
from . import history


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--campaigns", type=int, default=200)
    parser.add_argument("--machines", type=int, default=10)
    args = parser.parse_args()
    if not chromium.installed():
        sys.exit("there is no Chromium here")
    chance = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for number in range(args.campaigns):
            dataset.add(folder / "history", history.session(number, args, chance))
        command = [sys.executable, "workflow_scripts/dlbench", "site", str(folder / "history")]
        command += ["--output", str(folder / "site")]
        taken_s = bench.run(command, cwd=bench.REPOSITORY).wall_s
        files = list((folder / "site").iterdir())
        opened_s = opened(sorted(path for path in files if path.suffix == ".html"))
        size = sum(path.stat().st_size for path in files)
    figures = bench.Figures(args.json)
    what = f"website of {args.campaigns} campaigns on {args.machines} machines"
    figures.add(f"making the {what}", taken_s, "s")
    figures.add(f"size of the {what}", size / 1e6, "MB", at_most=50)
    figures.add(f"opening the slowest of its {len(opened_s)} pages", max(opened_s), "s", at_most=2)


def opened(paths):
    """Seconds until each page is loaded."""
    with chromium.browser() as page:
        return [page(path).load_s for path in paths]


if __name__ == "__main__":
    main()
