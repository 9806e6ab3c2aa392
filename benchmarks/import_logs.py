"""What it costs to read a long log of tf_cnn_benchmarks, beside a loop that matches every line.

Writes a log in which every step is printed. Reads it, each time in a process of its own, turn by
turn:
- `importer`: our importer, with the times of windows worked out;
- `naive`: `re.match` on every line, numbers appended to a list of tuples;
- `nothing`: what the importer imports, and no log;
- `program`: `dlbench import` as a whole, which also tries all importers on the log, takes its
  digest and writes the tables of runs and steps.
Measured are CPU seconds (user and system), peak resident memory, and both over those of the naive
loop in the same round. Targets of the importer and the program: 0.6 of the CPU time, half of the
memory.
"""

import functools
import random
import sys
import tempfile
from pathlib import Path

from support.logs.log_samples import tf_cnn_banner

from . import REPOSITORY, measuring

OURS = """
import sys
sys.path.insert(0, sys.argv[2])
from dlbench.imports.importers import tf_cnn_benchmarks
from dlbench.imports.log_file import LogFile
from dlbench.tables import parquet_files
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
    parser = measuring.parser(__doc__)
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
                sys.executable, library / "dlbench", "import", log,
                f"--output={folder}/runs.parquet", f"--steps={folder}/steps.parquet",
            ],
        }  # fmt: skip
        calls = {name: functools.partial(measuring.run, line) for name, line in commands.items()}
        used = measuring.in_turns(args.rounds, calls)
    figures = measuring.Figures(args.json)
    cpu_s = {name: [one.cpu_s for one in each] for name, each in used.items()}
    peak_mb = {name: [one.peak_mb for one in each] for name, each in used.items()}
    for name in commands:
        figures.add(f"{name}, {args.steps} steps, CPU time", cpu_s[name], "s")
        figures.add(f"{name}, {args.steps} steps, memory", peak_mb[name], "MB")
    for name in ("importer", "program"):
        for what, of, most in (("CPU time", cpu_s, 0.6), ("memory", peak_mb, 0.5)):
            ratios = measuring.ratios(of[name], of["naive"])
            figures.add(f"{name}, {what} over the naive loop's", ratios, at_most=most)


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


if __name__ == "__main__":
    main()
