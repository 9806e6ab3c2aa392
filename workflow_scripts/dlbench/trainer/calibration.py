"""What a device attains: the fastest product of matrices, and a copy in memory.

- The framework computes both after the run has ended, in the run's precision and on its cores or
  GPU, so that the calibration cannot change what the run measured.
- Matrices are square. Their size is doubled while a product is short and the rate still grows. A
  stall may hide that one size is faster than another, so the two fastest sizes are measured again
  for longer.
- The long measurement lasts some seconds and consists of short rounds. The fastest round counts:
  disturbances make a round slower, nothing makes it faster. Other processes disturb for seconds, or
  one core at a time, and some places in memory are slower than others, so arrays are allocated
  several times. If its host moves the cores of a virtual machine, its rates change.
- The copied arrays are larger than any cache; bytes read and bytes written are both counted.
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
from dlbench.common.files import atomic_write, json_digest
from dlbench.log.event_log import EventLog

SIZES = tuple(2**power for power in range(7, 14))  # of a matrix: 128 to 8192
COPY_ELEMENTS = 2**26  # of float32
ROUNDS, ROUND_S = 5, 0.02
SECONDS = 14.0  # of the long measurements
PRODUCTS = 9 / 14  # the share of these seconds for products; copies have the rest
PLACES = 10  # how often arrays are allocated anew
AT_LENGTH = 2  # how many sizes of matrices are measured for long
MAX_S = 0.25  # of one product
MIN_GAIN = 1.02  # of a rate, for the next size to be tried
Repeat = Callable[[int], None]  # performs an operation `count` times and waits for the last one


class Kernels(Protocol):
    """The operations that are timed, on the first device of this process unless said otherwise."""

    @property
    def reader(self) -> type[Any]:
        """How the framework reads converted datasets: a class derived from ConvertedDataset."""

    def product(self, size: int) -> Repeat:
        """Multiply two square matrices in the precision of the run."""

    def copy(self, elements: int) -> tuple[Repeat, int]:
        """Add one float32 array to another, and how many bytes that reads and writes."""

    def from_host(self, elements: int) -> Repeat:
        """Copy so many float32 values from the memory of the host to the device."""

    def collective(self, name: str, elements: int) -> Repeat:
        """A collective over all devices of the run, by the library and with the options of a step.

        dlbench/baselines/collectives.py has their names, and what so many float32 values are.
        Raises NotImplementedError: the library lacks it.
        """


def repeated(operation: Callable[[], Any], wait: Callable[[Any], Any]) -> Repeat:
    """Performs an operation as often as it is told; then waits for the result of the last one."""

    def repeat(count: int) -> None:
        for _ in range(count):
            result = operation()
        wait(result)

    return repeat


def calibrate(
    kernels: Callable[[], Kernels],
    folder: str | Path,
    machine: dict[str, Any],
    log: EventLog,
    lasting_s: float = SECONDS,
) -> None:
    """Write the event `calibration`: what the device attains, or why that is not known.

    `kernels` makes them; it may fail, for instance because the device's memory is full. Measured
    values are stored in the folder by `machine`, what tells one device from another: hardware,
    versions, precision, cores. The long measurements last `lasting_s` seconds.
    """
    path = Path(folder) / f"{json_digest(machine)[:32]}.json"
    rates: dict[str, Any] | None = _stored(path, machine)
    try:
        if rates is None:
            rates = measure(kernels(), lasting_s=lasting_s)
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as part:
                text = json.dumps({"machine": machine, "attained": rates}, indent=1)
                part.write_text(text, encoding="utf-8")
        else:
            rates = {**rates, "kept": True}
        log.write("calibration", **rates)
    except Exception as error:  # of any framework: the run has completed before
        reason = terminal.message(f"{type(error).__name__}: {error}", 200)
        log.write("calibration", unknown=reason)


def measure(
    kernels: Kernels,
    clock: Callable[[], float] = time.perf_counter,
    lasting_s: float = SECONDS,
) -> dict[str, Any]:
    """The best rates: TFLOP/s and the size of the matrices, GB/s, and the seconds all of it took.

    The long measurements last `lasting_s` seconds.
    """
    begin = clock()
    flops, size = _best_product(kernels, clock, lasting_s * PRODUCTS)
    moved = 0

    def copy():
        nonlocal moved
        repeat, moved = kernels.copy(COPY_ELEMENTS)
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
        if 8 * seconds > MAX_S:
            break
        seconds = _seconds(kernels.product(size), ROUNDS, 0.0, clock)
        rates[size] = rate = 2 * size**3 / seconds
        # Small matrices say little about large ones: the caches of several cores take turns.
        if best and rate < MIN_GAIN * best and size >= 1024:
            break
        best = max(best, rate)
    candidates = []
    for size in sorted(rates, key=rates.__getitem__)[-AT_LENGTH:]:
        make = functools.partial(kernels.product, size)
        candidates.append((2 * size**3 / _at_length(make, long_s / AT_LENGTH, clock), size))
    return max(candidates)


def _at_length(make: Callable[[], Repeat], lasting_s: float, clock: Callable[[], float]) -> float:
    """The least seconds that one operation took, with arrays in several places in memory."""
    end, best = clock() + lasting_s, math.inf
    while clock() < end:
        best = min(best, _seconds(make(), 1, lasting_s / PLACES, clock))
    return best


def _seconds(repeat: Repeat, rounds: int, lasting_s: float, clock: Callable[[], float]) -> float:
    """The least seconds that one operation took, in at least `rounds` rounds and `lasting_s`."""
    _time(repeat, 1, clock)  # compiles, makes threads, or touches memory
    count = max(1, round(ROUND_S / _time(repeat, 1, clock)))
    end, best = clock() + lasting_s, math.inf
    while rounds > 0 or clock() < end:
        best = min(best, _time(repeat, count, clock))
        rounds -= 1
    return best / count


def _time(repeat, count, clock):
    begin = clock()
    repeat(count)
    return max(clock() - begin, 1e-9)


def _stored(path, machine):
    """The rates that were measured before on such a machine; None if no valid file has them."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["machine"] == json.loads(json.dumps(machine)):
            names = ("tflops", "gb_per_s", "matrix_size")
            return {name: stored["attained"][name] for name in names}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None
