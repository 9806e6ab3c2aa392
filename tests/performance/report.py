"""How large the report of 2 000 runs is, and how long it takes to open and to sort.

    uv run python tests/performance/report.py [--runs 2000] [--figures FOLDER]

The tables are made up (tests/performance/figures.py says of what), every fiftieth run failed. All
figures are drawn, or taken from a folder where they were drawn before. Opened in headless Chromium,
which must be installed: until the end of the load event, and the first sort of the table of runs
until its rows are painted, medians of five. The targets: under 5 MB; opening and sorting together
under 2 s. It ends with 1 where one is missed.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [
    str(REPOSITORY / p) for p in ("tests/support", "workflow_scripts", "tests/performance")
]

import chromium  # noqa: E402
import figures as of_figures  # noqa: E402
import made_tables  # noqa: E402

from dlbench.common import plugins  # noqa: E402

TARGET_BYTES, TARGET_S = 5_000_000, 2.0
REPEATS = 5
SORT = """
const all = [...document.querySelectorAll('#table-runs thead th button')];
const begun = performance.now();
all.find((b) => b.textContent.startsWith('images per second')).click();
await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
return (performance.now() - begun) / 1e3;
"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--figures", type=Path, help="folder of figures that were drawn before")
    args = parser.parse_args()
    if not chromium.installed():
        sys.exit("there is no Chromium here")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        rows = of_figures.study()[: args.runs]
        rows = made_tables.failing(rows, lambda row: int(row["run_id"][5:], 16) % 50 == 0)
        shown = made_tables.write(folder, rows, steps_each=0 if args.figures else 100)
        drawn, names = args.figures or folder / "figures", plugins.names("figures")
        if not args.figures:
            for name in names:
                plugins.load("figures", name).draw(shown, drawn / name)
        taken = build(folder, drawn, names)
        path = folder / "report.html"
        size = path.stat().st_size
        opened, sorted_ = measured(path)
    print(f"{len(rows)} runs, {len(names)} figures; made in {taken:.2f} s")
    print(f"size      {size / 1e6:6.2f} MB (target < 5; {size / TARGET_BYTES:.2f} of it)")
    print(f"opening   {opened:6.2f} s")
    print(f"sorting   {sorted_:6.2f} s")
    both = opened + sorted_
    print(f"together  {both:6.2f} s  (target < {TARGET_S:g}; {both / TARGET_S:.2f} of it)")
    sys.exit(size >= TARGET_BYTES or both >= TARGET_S)


def build(folder, drawn, names):
    """Seconds of the program, Python and its libraries included."""
    command = [sys.executable, "workflow_scripts/build_report.py", f"--tables={folder}",
               f"--runs={folder / 'runs'}", f"--figures-folder={drawn}",
               f"--output={folder / 'report.html'}", "--figures", *names]  # fmt: skip
    begun = time.monotonic()
    subprocess.run(command, cwd=REPOSITORY, check=True)
    return time.monotonic() - begun


def measured(path):
    """(seconds until the end of the load event, seconds of the first sort), medians."""
    with chromium.browser() as page:
        pages = (page(path) for _ in range(REPEATS))
        times = [(opened.load_s, opened.run(SORT)) for opened in pages]
    return tuple(statistics.median(column) for column in zip(*times, strict=True))


if __name__ == "__main__":
    main()
