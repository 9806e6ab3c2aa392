"""How large the report of 2 000 runs is, and how long it takes to open and to sort.

    uv run python -m tests.performance.results.report [--runs 2000] [--figures FOLDER]

The tables are made up (figures.py beside it says of what), every fiftieth run failed. All figures
are drawn, or taken from a folder where they were drawn before. Opened in headless Chromium, which
must be installed: until the end of the load event, and the first sort of the table of runs until
its rows are painted, five times. The targets: under 5 MB; opening and sorting together under 2 s.
"""

import sys
import tempfile
from pathlib import Path

from dlbench.common import plugins
from support.results import chromium, made_tables

from .. import bench
from . import figures as of_figures

TARGET_MB, TARGET_S = 5, 2
REPEATS = 5
SORT = """
const all = [...document.querySelectorAll('#table-runs thead th button')];
const begun = performance.now();
all.find((b) => b.textContent.startsWith('images per second')).click();
await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
return (performance.now() - begun) / 1e3;
"""


def main():
    parser = bench.parser(__doc__)
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
        opened_s, sorted_s = measured(path)
    of = f"report of {len(rows)} runs with {len(names)} figures"
    reported = bench.Figures(args.json)
    reported.add(f"making the {of}", taken, "s")
    reported.add(f"size of the {of}", size / 1e6, "MB", at_most=TARGET_MB)
    reported.add("opening it", opened_s, "s")
    reported.add("sorting its table of runs", sorted_s, "s")
    both_s = [opening + sorting for opening, sorting in zip(opened_s, sorted_s, strict=True)]
    reported.add("opening and sorting", both_s, "s", at_most=TARGET_S)


def build(folder, drawn, names):
    """Seconds of the program, Python and its libraries included."""
    command = [sys.executable, "workflow_scripts/dlbench", "report", f"--tables={folder}",
               f"--runs={folder / 'runs'}", f"--figures-folder={drawn}",
               f"--output={folder / 'report.html'}", "--figures", *names]  # fmt: skip
    return bench.run(command, cwd=bench.REPOSITORY).wall_s


def measured(path):
    """(seconds until the end of the load event, seconds of the first sort), of each time."""
    with chromium.browser() as page:
        pages = (page(path) for _ in range(REPEATS))
        times = [(opened.load_s, opened.run(SORT)) for opened in pages]
    return tuple(zip(*times, strict=True))


if __name__ == "__main__":
    main()
