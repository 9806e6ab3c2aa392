"""All-reduce over sizes, from a message that is all latency to the gradients of models.

Bus bandwidth is that of nccl-tests: bytes / time x 2 (n - 1) / n, for each of n devices sends and
receives that many times the bytes whatever the algorithm, so that it compares with the speed of the
links for every n (NVIDIA/nccl-tests, doc/PERFORMANCE.md, "AllReduce"). Latency is the time of the
smallest size.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dlbench.baselines import measures, rounds
from dlbench.trainer.calibration import Repeat

MEASURE = measures.OF_EXCHANGE[0]
MIN_BYTES, FACTOR = 1 << 10, 2
FLOAT32_BYTES = 4  # gradients are float32, also where products are of fewer bits


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


def bus_bytes(size_bytes: int, devices: int) -> float:
    """The bytes by which bus bandwidth is counted.

    >>> bus_bytes(1000, devices=2), bus_bytes(1000, devices=4)
    (1000.0, 1500.0)
    """
    if devices < 2:
        raise ValueError(f"an all-reduce needs two devices or more, found {devices}")
    return size_bytes * 2 * (devices - 1) / devices


def rows(
    make_all_reduce: Callable[[int], Repeat],
    gather: rounds.Gather,
    devices: int,
    gradients_bytes: Iterable[int],
) -> Iterator[dict[str, Any]]:
    """Yield a row of the table of baselines for each size; all processes call it together.

    Args:
        make_all_reduce: gives all-reduces of so many float32 values over all devices.
        gather: of the processes' strategy.
        devices: of all processes.
        gradients_bytes: sizes of the gradients of the models.
    """
    for size in sizes_bytes(gradients_bytes):
        seconds = rounds.seconds_per_operation(make_all_reduce(size // FLOAT32_BYTES), gather)
        yield rounds.timed(MEASURE, size, seconds, bus_bytes(size, devices))
