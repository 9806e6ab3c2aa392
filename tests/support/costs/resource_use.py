"""Measure the time, CPU time and memory of a command, and capture its output."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

# The kernel counts the memory of whoever starts a process as the peak of that process: a small
# Python between the two has little.
BETWEEN = """
import json, os, resource, sys
path, *command = sys.argv[1:]
status = os.spawnvp(os.P_WAIT, command[0], command)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(path, "w") as file:
    json.dump([used.ru_utime + used.ru_stime, used.ru_maxrss], file)
sys.exit(status if status >= 0 else 128 - status)
"""


class Used(NamedTuple):
    """Resources of a process, including the children it waited for, and its output."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    output: str


def run(command, **options):
    """Run a command to its end, as subprocess.run does with these options. Returns a Used.

    Raises:
        subprocess.CalledProcessError: it failed; `output` has what it printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "used.json")
        arguments = [sys.executable, "-I", "-S", "-c", BETWEEN, path, *command]
        started = time.perf_counter()
        finished = subprocess.run(
            list(map(str, arguments)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            **options,
        )
        wall_s = time.perf_counter() - started
        output = finished.stdout.decode(errors="replace")
        if finished.returncode:
            raise subprocess.CalledProcessError(finished.returncode, command, output)
        cpu_s, peak_kib = json.loads(path.read_text())
    return Used(wall_s, cpu_s, peak_kib / 1000, output)
