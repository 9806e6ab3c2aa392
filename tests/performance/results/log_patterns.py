"""What it costs to read a long log by patterns, beside a loop that matches every line by `re`.

    uv run python -m tests.performance.results.log_patterns [--steps 1000000] [--rounds 5]

Writes a log as nanoGPT prints it, a line a step, and one as four ranks print it under torchrun.
Reads each, every time in a process of its own, turn by turn:
- `patterns`: the patterns of a config, with steps, losses and times of windows as columns;
- `loop`: the same regular expression by `re` on every line, its numbers appended to a list of
  tuples; of ranks after another expression that removes their labels;
- `nothing`: what reading by patterns imports, and no log.
Prints CPU seconds (user and system), peak resident memory, and both over those of the loop in the
same round. Target: at most 1.5 times the CPU time of the loop.
"""

import functools
import random
import sys
import tempfile
from pathlib import Path

from .. import bench

RANKS = 4
PATTERN = r"iter (?P<step>\d+): loss (?P<loss>\S+), time (?P<step_time_ms>\S+)ms"
OURS = f"""
import sys
sys.path.insert(0, sys.argv[2])
from dlbench.imports import kinds
from dlbench.imports.log_file import LogFile
if sys.argv[1] != "":
    importer = kinds.of_config({{"step": r"{PATTERN}"}}, processes=1)
    (run,) = importer.read(LogFile(sys.argv[1]))
    run.complete(run.columns)
    print(len(run.steps), run.steps.step_time_s[-1])
"""
LOOP = f"""
import re
import sys
pattern, label = re.compile(r"{PATTERN}"), re.compile(r"\\[rank(\\d+)\\]:")
found = {{}}
with open(sys.argv[1]) as file:
    for line in file:
        rank = label.match(line)
        match = pattern.search(line, rank.end() if rank else 0)
        if match:
            row = int(match["step"]), float(match["loss"]), float(match["step_time_ms"]) / 1000
            found.setdefault(rank and rank[1], []).append(row)
print(sum(map(len, found.values())))
"""


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    figures = bench.Figures(args.json)
    library = bench.REPOSITORY / "workflow_scripts"
    for title, ranks in (("one process", 1), (f"{RANKS} ranks", RANKS)):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            write(log, args.steps // ranks, ranks)
            commands = {
                "patterns": [sys.executable, "-c", OURS, log, library],
                "loop": [sys.executable, "-c", LOOP, log],
                "nothing": [sys.executable, "-c", OURS, "", library],
            }
            calls = {name: functools.partial(bench.run, line) for name, line in commands.items()}
            used = bench.in_turns(args.rounds, calls)
        cpu_s = {name: [one.cpu_s for one in each] for name, each in used.items()}
        peak_mb = {name: [one.peak_mb for one in each] for name, each in used.items()}
        for name in commands:
            figures.add(f"{title}, {name}, {args.steps} lines, CPU time", cpu_s[name], "s")
            figures.add(f"{title}, {name}, {args.steps} lines, memory", peak_mb[name], "MB")
        ratios = bench.ratios(cpu_s["patterns"], cpu_s["loop"])
        figures.add(f"{title}, patterns, CPU time over the loop's", ratios, at_most=1.5)
        ratios = bench.ratios(peak_mb["patterns"], peak_mb["loop"])
        figures.add(f"{title}, patterns, memory over the loop's", ratios)


def write(path, steps, ranks):
    """A log in which times wander; several ranks have labels and take turns."""
    random.seed(1)
    with open(path, "w") as file:
        for step in range(steps):
            for rank in range(ranks):
                label = f"[rank{rank}]:" if ranks > 1 else ""
                time_ms = random.gauss(45, 0.05)
                file.write(
                    f"{label}iter {step}: loss {7 * 0.999999**step:.4f}, time {time_ms:.2f}ms, "
                    "mfu 12.30%\n"
                )


if __name__ == "__main__":
    main()
