"""What a device attains: the fastest product of matrices, and a copy in memory.

- By the framework, in the precision and on the cores or the GPU of the run that has just ended, so
  that nothing which the run measured is changed.
- Matrices are square; their size is doubled as long as a product is short and the rate still grows.
  A stall may hide that one size is faster than another, so the two best are measured at length.
- At length is for some seconds, in short rounds, of which the best counts: whatever disturbs makes
  them slower, nothing makes them faster. Others disturb for seconds, or a core at a time; and some
  places in memory are slower than others, so that arrays are made anew several times. A virtual
  machine whose host moves its cores is another one then: docs/performance.md, copies.
- The copy is of arrays that no cache holds; its bytes are those read and those written.
- The result is stored in a file for each machine (its hardware, not its name), framework and
  setting: it is measured once and read by later runs.
"""

import functools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from dlbench.common import terminal
from dlbench.common.files import json_digest, written_whole
from dlbench.log.event_log import EventLog

SIZES = tuple(2**power for power in range(7, 14))  # of a matrix: 128 to 8192
COPY_ELEMENTS = 2**26  # numbers of 4 bytes
ROUNDS, ROUND_S = 5, 0.02
SECONDS = 14.0  # at length
PRODUCTS = 9 / 14  # of them; copies have the others
PLACES = 10  # how often arrays are made anew
AT_LENGTH = 2  # sizes of matrices
MOST_S = 0.25  # of one product
LEAST_GAIN = 1.02  # of a rate, for the next size to be tried
Repeat = Callable[[int], None]  # does it so many times, and waits for the last


class Kernels(Protocol):
    """What a framework is measured by, on the first device of this process."""

    @property
    def reader(self) -> type[Any]:
        """How the framework reads converted datasets: a class derived from Converted."""

    def product(self, size: int) -> Repeat:
        """Products of two square matrices in the precision of the run."""

    def copy(self, elements: int) -> tuple[Repeat, int]:
        """Passes over arrays of float32, and how many bytes one reads and writes."""

    def from_host(self, elements: int) -> Repeat:
        """Copies of so many values of float32 from the memory of the host to the device."""


def calibrate(
    kernels: Callable[[], Kernels],
    folder: str | Path,
    machine: dict[str, Any],
    log: EventLog,
    lasting_s: float = SECONDS,
) -> None:
    """Write the event `calibration`: what the device attains, or why that is not known.

    Args:
        kernels: makes them; it may fail, as when the device's memory is full.
        folder: where measured values are kept.
        machine: what makes a device another one: hardware, versions, precision, cores.
        lasting_s: how long it is measured at length, in seconds.
    """
    path = Path(folder) / f"{json_digest(machine)[:32]}.json"
    found: dict[str, Any] | None = _kept(path, machine)
    try:
        if found is None:
            found = measured(kernels(), lasting_s=lasting_s)
            path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(path) as part:
                text = json.dumps({"machine": machine, "attained": found}, indent=1)
                part.write_text(text, encoding="utf-8")
        else:
            found = {**found, "kept": True}
        log.write("calibration", **found)
    except Exception as error:  # of any framework: the run has ended well before
        reason = terminal.message(f"{type(error).__name__}: {error}", 200)
        log.write("calibration", unknown=reason)


def measured(
    kernels: Kernels,
    clock: Callable[[], float] = time.perf_counter,
    lasting_s: float = SECONDS,
) -> dict[str, Any]:
    """The best rates: TFLOP/s and the size of its matrices, GB/s, and the seconds all took.

    Args:
        lasting_s: how long it is measured at length, in seconds.
    """
    begin = clock()
    flops, size = _best_product(kernels, clock, lasting_s * PRODUCTS)
    moved = 0

    def copy():
        nonlocal moved
        times, moved = kernels.copy(COPY_ELEMENTS)
        return repeat

    copied_s = _at_length(copy, lasting_s * (1 - PRODUCTS), clock)
    return {
        "tflops": flops / 1e12,
        "matrix_size": size,
        "gb_per_s": moved / copied_s / 1e9,
        "copied_bytes": moved,
        "spent_s": round(clock() - begin, 3),
    }


def _best_product(kernels, clock, long_s):
    rates: dict[int, float] = {}
    best = seconds = 0.0
    for size in SIZES:
        if 8 * seconds > MOST_S:
            break
        seconds = _seconds(kernels.product(size), ROUNDS, 0.0, clock)
        rates[size] = rate = 2 * size**3 / seconds
        # Small ones tell little of large ones: the caches of several cores take turns.
        if best and rate < LEAST_GAIN * best and size >= 1024:
            break
        best = max(best, rate)
    found = []
    for size in sorted(rates, key=rates.__getitem__)[-AT_LENGTH:]:
        make = functools.partial(kernels.product, size)
        found.append((2 * size**3 / _at_length(make, long_s / AT_LENGTH, clock), size))
    return max(found)


def _at_length(make: Callable[[], Repeat], lasting_s: float, clock: Callable[[], float]) -> float:
    """Seconds of one of a kind at best, in several places in memory."""
    end, best = clock() + lasting_s, math.inf
    while clock() < end:
        best = min(best, _seconds(make(), 1, lasting_s / PLACES, clock))
    return best


def _seconds(times: Repeat, rounds: int, lasting_s: float, clock: Callable[[], float]) -> float:
    """Seconds of one of a kind at best, in so many rounds, or more that last so long."""
    _timed(times, 1, clock)  # compiles, makes threads, or touches memory
    number = max(1, round(ROUND_S / _timed(times, 1, clock)))
    end, best = clock() + lasting_s, math.inf
    while rounds > 0 or clock() < end:
        best = min(best, _timed(times, number, clock))
        rounds -= 1
    return best / number


def _timed(times, number, clock):
    begin = clock()
    times(number)
    return max(clock() - begin, 1e-9)


def _kept(path, machine):
    """What was measured before on such a machine; None if nothing whole is there."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["machine"] == json.loads(json.dumps(machine)):
            return {name: kept["attained"][name] for name in ("tflops", "gb_per_s", "matrix_size")}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None
