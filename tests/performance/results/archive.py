"""How long the archive of 2 000 runs takes, how large it is, and re-derivation beside drawing.

    uv run python -m tests.performance.results.archive [--runs 2000] [--steps 1000] [--small 40]

The runs are made up as in aggregation.py. Prints, of a process each, seconds of wall time and peak
memory:
- `dlbench archive`, and the size beside that of a plain zip of the same files;
- `dlbench verify` of it;
- for a small study, collecting, drawing all figures of the default study and the report where the
  study lies, its tables of runs made from the logs, too, one figure after the other and as many at
  once as there are cores; and `dlbench rederive`, which also verifies and unpacks.
The targets: an archive under 60 s and 1 GB; re-derivation under twice the time of drawing in place.
"""

import json
import os
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from dlbench.archive import workflow_files
from dlbench.records import run_record
from dlbench.study import config

from .. import bench
from . import aggregation

TARGET_S, TARGET_MB, TARGET_RATIO = 60, 1000, 2
FIGURES = ("scaling", "batch_size", "loss", "step_times", "coverage")  # of the default study


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--small", type=int, default=40, help="runs of the small study")
    parser.add_argument("--draw", nargs="+", default=list(FIGURES), help="figures of the studies")
    args = parser.parse_args()
    figures = bench.Figures(args.json)
    # Python's own compiling, which happens once, is left out.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        made = made_study(Path(folder, "large"), args.runs, args.steps, args.draw)
        collect_and_draw(1)
        of = f"{made} runs of {args.steps} steps"
        written = program("dlbench", "archive")
        figures.add(f"dlbench archive, {of}, time", written.wall_s, "s", at_most=TARGET_S)
        figures.add(f"dlbench archive, {of}, memory", written.peak_mb, "MB", at_most=TARGET_MB)
        size, plain = Path("results/archive.zip").stat().st_size, plain_zip()
        figures.add(f"size of the archive of {of}", size / 1e6, "MB")
        figures.add("size of the archive over that of a plain zip", size / plain)
        checked = program("dlbench", "verify", "results/archive.zip")
        figures.add(f"dlbench verify, {of}, time", checked.wall_s, "s")
        made_study(Path(folder, "small"), args.small, args.steps, args.draw)
        rederivation(figures, args.small)


def made_study(folder, runs, steps, draw):
    """A finished study in a folder that becomes the current one; returns how many runs it has."""
    folder.mkdir()
    os.chdir(folder)
    for name in workflow_files.NAMES:
        Path(name).symlink_to(bench.REPOSITORY / name)
    settings = aggregation.study(runs) | {"figures": draw}
    Path("config.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(settings))))
    every = config.study(settings).runs
    aggregation.make(every, steps)
    return len(every)


def rederivation(figures, runs):
    """The times of a small study; like to like is one figure per core."""
    in_place_s = {}
    for cores in (1, os.cpu_count()):
        for table in (Path(run_record.RESULTS) / "runs").glob("*/*.parquet"):
            table.unlink()
        begun = time.monotonic()
        collect_and_draw(cores)
        in_place_s[cores] = time.monotonic() - begun
    program("dlbench", "archive")
    again_s = program("dlbench", "rederive", "results/archive.zip", "--output", "again").wall_s
    begun = time.monotonic()
    collect_and_draw(os.cpu_count())
    known_s = time.monotonic() - begun
    figures.add(f"dlbench rederive, {runs} runs, time", again_s, "s")
    all_cores_s, over = in_place_s[os.cpu_count()], "its time over drawing in place"
    figures.add(f"{over}, one figure a core", again_s / all_cores_s, at_most=TARGET_RATIO)
    figures.add(f"{over}, one figure after the other", again_s / in_place_s[1])
    figures.add(f"{over} where tables of runs are there", again_s / known_s)


def collect_and_draw(cores):
    names = yaml.safe_load(Path("config.yaml").read_text())["figures"]
    program("collect_runs.py")
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(lambda name: program("draw_figure.py", name), names))
    program("dlbench", "report", "--figures", *names)


def program(name, *arguments):
    return bench.run([sys.executable, f"workflow_scripts/{name}", *arguments])


def plain_zip():
    """Bytes of the same files in a zip as any program makes it."""
    with (
        zipfile.ZipFile("results/archive.zip") as archive,
        zipfile.ZipFile("plain.zip", "w", zipfile.ZIP_DEFLATED) as plain,
    ):
        for entry in archive.infolist():
            if entry.filename.startswith("archive/data/"):
                plain.writestr(entry.filename, archive.read(entry))
    size = Path("plain.zip").stat().st_size
    Path("plain.zip").unlink()
    return size


if __name__ == "__main__":
    main()
