"""Collectives over sizes, from a message that is all latency to the gradients of models.

Names, sizes and bandwidths of the bus are those of nccl-tests (NVIDIA/nccl-tests,
doc/PERFORMANCE.md): bytes / time x a factor by which each of n devices sends and receives more or
fewer bytes whatever the algorithm, so that it compares with the speed of the links for every n.
- all_reduce: `size_bytes` on each device are summed; the factor is 2 (n - 1) / n. Latency is the
  time of the smallest size.
- all_gather: `size_bytes` is what each device has in the end, and each sends its n-th part;
  (n - 1) / n.
- reduce_scatter: `size_bytes` is what each device has at the start; it keeps the sum of an n-th
  part; (n - 1) / n.
- sendrecv: each device sends `size_bytes` to the next one, and receives as many from the one
  before, in a ring; 1.
Sizes that n devices cannot divide are rounded up, as fully sharded training pads its weights.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dlbench.baselines import rounds
from dlbench.common import terminal
from dlbench.trainer.calibration import Repeat

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
MEASURES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, "sendrecv")
IN_PARTS = (ALL_GATHER, REDUCE_SCATTER)  # of which each device has an n-th part
FEWER_ROUNDS = 3  # of the others than all-reduce, from which the expected scaling is computed
MIN_BYTES, FACTOR = 1 << 10, 2
FLOAT32_BYTES = 4  # gradients are float32, also where products are of fewer bits
# What libraries say of a collective that they lack for this device or backend.
LACKING = ("not support", "unsupported", "not implemented", "unimplemented")


def sizes_bytes(gradients_bytes: Iterable[int]) -> list[int]:
    """The sizes that are measured: powers of two up to the largest gradients, and those of each.

    >>> sizes_bytes([5000])
    [1024, 2048, 4096, 5000]
    """
    sizes = {MIN_BYTES, *gradients_bytes}
    size = MIN_BYTES
    while size < max(sizes):
        sizes.add(size)
        size *= FACTOR
    return sorted(size for size in sizes if size >= MIN_BYTES)


def bus_bytes(measure: str, size_bytes: int, devices: int) -> float:
    """The bytes by which bus bandwidth is counted.

    >>> [bus_bytes(measure, 1000, devices=4) for measure in MEASURES]
    [1500.0, 750.0, 750.0, 1000.0]
    """
    if devices < 2:
        raise ValueError(f"{measure} needs two devices or more, found {devices}")
    if measure == ALL_REDUCE:
        return size_bytes * 2 * (devices - 1) / devices
    return size_bytes * ((devices - 1) / devices if measure in IN_PARTS else 1.0)


def elements(measure: str, size_bytes: int, devices: int) -> int:
    """How many float32 values such a message has.

    >>> elements("all_gather", 1024, devices=3), elements("sendrecv", 1024, devices=3)
    (258, 256)
    """
    values = size_bytes // FLOAT32_BYTES
    return -(-values // devices) * devices if measure in IN_PARTS else values


def rows(
    collective: Callable[[str, int], Repeat],
    gather: rounds.Gather,
    devices: int,
    gradients_bytes: Iterable[int],
) -> Iterator[dict[str, Any]]:
    """Yield the rows of each collective; all processes call it together.

    `collective` is of the framework's Kernels: of a name and so many float32 values; `gather` of
    the processes' strategy; `devices` of all processes; `gradients_bytes` of each model.
    """
    sizes = sizes_bytes(gradients_bytes)
    for measure in MEASURES:
        number = rounds.ROUNDS if measure == ALL_REDUCE else FEWER_ROUNDS
        for size in sizes:
            values = elements(measure, size, devices)
            try:
                repeat = collective(measure, values)
                seconds = rounds.seconds_per_operation(repeat, gather, number=number)
            except Exception as error:  # each framework has its own
                if measure == ALL_REDUCE or size != sizes[0] or not _is_lacking(error):
                    raise
                reason = terminal.message(str(error), 300)
                yield {"measure": measure, "unit": "GB/s", "unknown": reason}
                break
            moved = values * FLOAT32_BYTES
            yield rounds.timed(measure, moved, seconds, bus_bytes(measure, moved, devices))


def _is_lacking(error):
    """Whether the library lacks the collective: then it fails at once in all processes."""
    text = str(error).lower()
    return isinstance(error, NotImplementedError) or any(words in text for words in LACKING)
