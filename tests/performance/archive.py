"""How long the archive of 2 000 runs takes, how large it is, and re-derivation beside drawing.

    uv run python tests/performance/archive.py [--runs 2000] [--steps 1000] [--small 40]

The runs are made up as in tests/performance/aggregation.py. Prints, of a process each, seconds of
wall time and peak memory:
- `write_archive.py`, and the size beside that of a plain zip of the same files;
- `verify_archive.py` of it;
- for a small study, collecting, drawing all figures of the default study and the report where the
  study lies, its tables of runs made from the logs, too, one figure after the other and as many at
  once as there are cores; and `rederive.py`, which also verifies and unpacks.
The targets: an archive under 60 s and 1 GB; re-derivation under twice the time of drawing in place.
It ends with 1 where one is missed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [
    str(REPOSITORY / p) for p in ("tests/support", "workflow_scripts", "tests/performance")
]

import aggregation  # noqa: E402
import made_archives  # noqa: E402
import yaml  # noqa: E402

from dlbench.records import run_record  # noqa: E402
from dlbench.study import config  # noqa: E402

TARGET_S, TARGET_MB, TARGET_RATIO = 60, 1000, 2
FIGURES = ["scaling", "batch_size", "loss", "step_times", "coverage"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--small", type=int, default=40, help="runs of the small study")
    args = parser.parse_args()
    # Python's own compiling, which happens once, is left out.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        made = made_study(Path(folder, "large"), args.runs, args.steps)
        collect_and_draw(1)
        print(f"{made} runs of {args.steps} steps")
        wall_s, memory_mb = measured("write_archive.py", "write_archive.py")
        size, plain = Path("results/archive.zip").stat().st_size, plain_zip()
        print(f"size: {size / 1e6:.1f} MB, {size / plain:.3f} of a plain zip")
        measured("verify_archive.py", "verify_archive.py", "results/archive.zip")
        made_study(Path(folder, "small"), args.small, args.steps)
        ratio = rederivation(args.small)
    missed = wall_s >= TARGET_S or memory_mb >= TARGET_MB or ratio >= TARGET_RATIO
    sys.exit(bool(missed))


def made_study(folder, runs, steps):
    """A finished study in a folder that becomes the current one; returns how many runs it has."""
    folder.mkdir()
    os.chdir(folder)
    for name in made_archives.WORKFLOW:
        Path(name).symlink_to(REPOSITORY / name)
    settings = aggregation.study(runs) | {"figures": FIGURES}
    Path("config.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(settings))))
    every = config.study(settings).runs
    aggregation.make(every, steps)
    return len(every)


def rederivation(runs):
    """Print the times for a small study; returns the ratio of like to like: one figure per core."""
    seconds = {}
    for cores in (1, os.cpu_count()):
        for table in (Path(run_record.RESULTS) / "runs").glob("*/*.parquet"):
            table.unlink()
        begun = time.monotonic()
        collect_and_draw(cores)
        seconds[cores] = time.monotonic() - begun
    program("write_archive.py")
    wall_s, _ = measured("rederive.py", "rederive.py", "results/archive.zip", "--output", "again")
    begun = time.monotonic()
    collect_and_draw(os.cpu_count())
    known_s = time.monotonic() - begun
    for cores, took in seconds.items():
        print(f"{runs} runs in place on {cores} core(s): {took:.1f} s, ratio {wall_s / took:.2f}")
    print(f"{runs} runs in place, tables of runs there: {known_s:.1f} s, {wall_s / known_s:.2f}")
    return wall_s / seconds[os.cpu_count()]


def collect_and_draw(cores):
    program("collect_runs.py")
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(lambda name: program("draw_figure.py", name), FIGURES))
    program("build_report.py", "--figures", *FIGURES)


def program(name, *arguments):
    command = [sys.executable, f"workflow_scripts/{name}", *arguments]
    subprocess.run(command, check=True, capture_output=True)


def measured(what, name, *arguments):
    """Run a program; print and return its seconds and the most memory of it and what it starts."""
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, f"workflow_scripts/{name}", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s, memory_mb = time.monotonic() - begun, usage.ru_maxrss / 1000
    if status:
        sys.exit(output.decode())
    print(f"{what}: {wall_s:.1f} s, {memory_mb:.0f} MB", flush=True)
    return wall_s, memory_mb


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
