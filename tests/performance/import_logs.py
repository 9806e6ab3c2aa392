"""What it costs to read a long log of tf_cnn_benchmarks, beside a loop that matches every line.

    uv run python tests/performance/import_logs.py [--steps 1000000] [--rounds 5]

Writes a log in which every step is printed. Reads it, each time in a process of its own, turn by
turn:
- `importer`: our importer, with the times of windows worked out;
- `naive`: `re.match` on every line, numbers appended to a list of tuples;
- `nothing`: what the importer imports, and no log;
- `program`: `import_logs.py` as a whole, which also tries all importers on the log, takes its
  digest and writes the tables of runs and steps.
Prints CPU seconds (user and system) and peak resident memory, medians over rounds, and ratios to
the naive loop within rounds. Targets of the importer: 0.6 of the CPU time, a third of the memory.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [str(REPOSITORY / "tests/support"), str(REPOSITORY / "workflow_scripts")]

from log_samples import tf_cnn_banner  # noqa: E402

OURS = """
import sys
sys.path.insert(0, sys.argv[2])
from dlbench.imports.importers import tf_cnn_benchmarks
from dlbench.imports.log_file import LogFile
if sys.argv[1] != "":
    (run,) = tf_cnn_benchmarks.read(LogFile(sys.argv[1]))
    run.complete(run.columns)
    print(len(run.steps), run.columns["images_per_second"])
"""
NAIVE = r"""
import re
import sys
found = []
if sys.argv[1] != "":
    with open(sys.argv[1]) as file:
        for line in file:
            match = re.match(
                r"^(\d+)\s+images/sec: ([\d.]+) \+/- ([\d.]+) \(jitter = ([\d.]+)\)\s+([\d.]+|nan)",
                line,
            )
            if match:
                found.append((int(match[1]), *(float(match[n]) for n in (2, 3, 4, 5))))
print(len(found))
"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        write(log, args.steps)
        library = REPOSITORY / "workflow_scripts"
        commands = {
            "importer": [sys.executable, "-c", OURS, log, library],
            "naive": [sys.executable, "-c", NAIVE, log],
            "nothing": [sys.executable, "-c", OURS, "", library],
            "program": [
                sys.executable, library / "import_logs.py", log,
                f"--output={folder}/runs.parquet", f"--steps={folder}/steps.parquet",
            ],
        }  # fmt: skip
        measured = {name: [] for name in commands}
        for number in range(args.rounds):
            for name, command in list(commands.items())[:: 1 if number % 2 else -1]:
                measured[name].append(run(command))
    print(f"{args.steps} steps, {args.rounds} rounds")
    for name, values in measured.items():
        seconds, megabytes = map(statistics.median, zip(*values, strict=True))
        print(f"{name}: {seconds:.2f} CPU-s, {megabytes:.0f} MB")
    for name in ("importer", "program"):
        for column, what in ((0, "CPU time"), (1, "peak memory")):
            pairs = zip(measured[name], measured["naive"], strict=True)
            ratios = sorted(own[column] / naive[column] for own, naive in pairs)
            print(
                f"{name} / naive, {what}: {statistics.median(ratios):.2f} "
                f"({ratios[0]:.2f} .. {ratios[-1]:.2f})"
            )


def write(path, steps):
    """A log in which rates wander, and steps are printed one by one."""
    random.seed(1)
    with open(path, "w") as file:
        file.write(tf_cnn_banner(steps=steps))
        for step in range(1, steps + 1):
            rate, loss = random.gauss(412, 0.5), 7 * 0.999999**step
            error = 5 / step**0.5
            file.write(
                f"{step}\timages/sec: {rate:.1f} +/- {error:.1f} (jitter = 2.3)\t{loss:.3f}\n"
            )
        file.write(f"{'-' * 64}\ntotal images/sec: 411.87\n{'-' * 64}\n")


def run(command):
    """(CPU seconds, peak MB) of a process."""
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(error.decode())
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


if __name__ == "__main__":
    main()
