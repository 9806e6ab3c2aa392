"""Whether the machine stands still: copies in memory by one core and by all of them, in turns.

    uv run python -m tests.performance.machine.copies [--seconds 120]

Adds one array to another, 256 MiB each, as a calibration does (dlbench/trainer/calibration.py), by
numpy in one thread and in a thread for each core. The arrays stay where they are in memory.
Prints the best rate of each fifth of a second, and by how much the best ones differ. Where those of
all cores differ and those of one core do not, it is the machine that changes: a virtual one, for
instance, whose host moves its cores.
"""

import math
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .. import bench

NUMBERS = 2**26
MOVED_BYTES = 3 * 4 * NUMBERS  # two arrays are read, one is written
ROUND_S = 0.2


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    args = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    sums, source = np.zeros(NUMBERS, np.float32), np.ones(NUMBERS, np.float32)
    sums += source  # gets its pages
    found = {1: [], cores: []}
    with ThreadPoolExecutor(cores) as threads:
        end = time.monotonic() + args.seconds
        while time.monotonic() < end:
            for number, rates in found.items():
                rates.append(best_rate(threads, number, sums, source))
    figures = bench.Figures(args.json)
    for number, rates in found.items():
        name = f"a copy by {number} core{'s' if number > 1 else ''}"
        figures.add(name, rates, "GB/s")
        figures.add(f"{name}, the fastest over the slowest", max(rates) / min(rates))


def best_rate(threads, number, sums, source):
    """GB/s of the best of the copies that so many threads make in a fifth of a second."""
    parts = list(zip(*(np.array_split(array, number) for array in (sums, source)), strict=True))
    best_s, end = math.inf, time.perf_counter() + ROUND_S
    while time.perf_counter() < end:
        begin = time.perf_counter()
        list(threads.map(lambda part: np.add(*part, out=part[0]), parts))
        best_s = min(best_s, time.perf_counter() - begin)
    return MOVED_BYTES / best_s / 1e9


if __name__ == "__main__":
    main()
