"""What watching a program of others from outside costs: the process that started it.

    uv run python -m tests.performance.machine.watching [--seconds 60] [--processes 10]

Starts train_external.py with a program that has so many processes, half of which compute a little,
and prints the CPU time of train_external.py alone, from its fifth second on, in per cent of a core
at 1 Hz (target: under 0.1). GPUs cost more: 5 ms each (docs/gpus.md).
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dlbench.study.runs import Run

from .. import bench

RUN = Run(
    model="none", dataset="none", batch_per_device=1, steps=1, trainer="theirs", framework="none"
)
START_S = 5.0
PROGRAM = """
import subprocess, sys, time
count, seconds = int(sys.argv[1]), float(sys.argv[2])
computes = "import sys, time\\nwhile True:\\n  sum(range(int(sys.argv[1])))\\n  time.sleep(0.2)"
for number in range(count - 1):
    amount = str(20000 * (number % 2))
    subprocess.Popen([sys.executable, "-S", "-c", computes, amount])
end = time.monotonic() + seconds
while time.monotonic() < end:
    print("alive", flush=True)
    time.sleep(1)
"""


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=10)
    args = parser.parse_args()
    figures = bench.Figures(args.json)
    percent = [100 * cores(args.seconds, args.processes) for _ in range(3)]
    name = f"watching {args.processes} processes at 1 Hz"
    figures.add(name, percent, "% of a core", at_most=0.1)


def cores(seconds, processes):
    """The cores that the watching process used, on average."""
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-S", "-c", PROGRAM, str(processes), str(seconds + 9)]
        watcher = subprocess.Popen(
            [
                *(sys.executable, "workflow_scripts/train_external.py", "--sample-every-s=1"),
                f"--log={folder}/run/train.jsonl",
                f"--spec={json.dumps(RUN.values())}",
                "--",
                *program,
            ],
            cwd=bench.REPOSITORY,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            time.sleep(START_S)
            before, started = cpu_s(watcher.pid), time.monotonic()
            time.sleep(seconds)
            return (cpu_s(watcher.pid) - before) / (time.monotonic() - started)
        finally:
            os.killpg(watcher.pid, signal.SIGKILL)  # with the program, of the same group
            watcher.wait()


def cpu_s(pid):
    """CPU seconds of all threads of a process, to the nanosecond."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in threads) / 1e9


if __name__ == "__main__":
    main()
