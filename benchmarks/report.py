"""How large the report of 2 000 runs is, and how long it takes to open and to sort.

The tables are made up: two models in weak scaling, a batch sweep and a sweep that learns, five
repeats each; every fiftieth run failed. All figures are drawn. The page is opened in headless
Chromium five times: until the end of the load event, and the first sort of the table of runs until
its rows are painted. The targets: under 5 MB; opening and sorting together under 2 s.
"""

import sys
import tempfile
from pathlib import Path

from dlbench.common import plugins
from support.results import chromium, made_tables

from . import REPOSITORY, measuring

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
    parser = measuring.parser(__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    args = parser.parse_args()
    if not chromium.installed():
        sys.exit("there is no Chromium here")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        rows = study()[: args.runs]
        rows = made_tables.failing(rows, lambda row: int(row["run_id"][5:], 16) % 50 == 0)
        shown = made_tables.write(folder, rows, steps_each=100)
        drawn, names = folder / "figures", plugins.names("figures")
        for name in names:
            plugins.load("figures", name).draw(shown, drawn / name)
        taken = build(folder, drawn, names)
        path = folder / "report.html"
        size = path.stat().st_size
        opened_s, sorted_s = measured(path)
    of = f"report of {len(rows)} runs with {len(names)} figures"
    reported = measuring.Figures(args.json)
    reported.add(f"making the {of}", taken, "s")
    reported.add(f"size of the {of}", size / 1e6, "MB", at_most=TARGET_MB)
    reported.add("opening it", opened_s, "s")
    reported.add("sorting its table of runs", sorted_s, "s")
    both_s = [opening + sorting for opening, sorting in zip(opened_s, sorted_s, strict=True)]
    reported.add("opening and sorting", both_s, "s", at_most=TARGET_S)


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


def build(folder, drawn, names):
    """Seconds of the program, Python and its libraries included."""
    command = [sys.executable, "workflow_scripts/dlbench", "report", f"--tables={folder}",
               f"--runs={folder / 'runs'}", f"--figures-folder={drawn}",
               f"--output={folder / 'report.html'}", "--figures", *names]  # fmt: skip
    return measuring.run(command, cwd=REPOSITORY).wall_s


def measured(path):
    """(seconds until the end of the load event, seconds of the first sort), of each time."""
    with chromium.browser() as page:
        pages = (page(path) for _ in range(REPEATS))
        times = [(opened.load_s, opened.run(SORT)) for opened in pages]
    return tuple(zip(*times, strict=True))


if __name__ == "__main__":
    main()
