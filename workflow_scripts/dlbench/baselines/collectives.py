"""All-gather, reduce-scatter and point to point, at the sizes of the all-reduce.

- All-gather: `size_bytes` is what each of n devices has in the end, and each sends its n-th part.
  Bus bandwidth is bytes / time x (n - 1) / n.
- Reduce-scatter: `size_bytes` is what each device has at the start; it keeps the sum of an n-th
  part. Bus bandwidth is again bytes / time x (n - 1) / n.
- Point to point (sendrecv): each device sends `size_bytes` to the next one, and receives as many
  from the one before, in a ring. Bus bandwidth is bytes / time.

Names, sizes and bandwidths are those of nccl-tests (NVIDIA/nccl-tests, doc/PERFORMANCE.md). Sizes
that n devices cannot divide are rounded up, as fully sharded training pads its weights.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dlbench.baselines import all_reduce, measures, rounds
from dlbench.common import terminal
from dlbench.trainer.calibration import Repeat

MEASURES = measures.OF_EXCHANGE
ALL_GATHER, REDUCE_SCATTER, SENDRECV = OTHERS = MEASURES[1:]
IN_PARTS = (ALL_GATHER, REDUCE_SCATTER)  # of which each device has an n-th part
ROUNDS = 3  # fewer than of all-reduce, from which the expected scaling is computed
# What libraries say of a collective that they lack for this device or backend.
LACKING = ("not support", "unsupported", "not implemented", "unimplemented")


def bus_bytes(measure: str, size_bytes: int, devices: int) -> float:
    """The bytes by which bus bandwidth is counted.

    >>> bus_bytes("all_gather", 1000, devices=4), bus_bytes("sendrecv", 1000, devices=4)
    (750.0, 1000.0)
    """
    if devices < 2:
        raise ValueError(f"{measure} needs two devices or more, found {devices}")
    share = (devices - 1) / devices if measure in IN_PARTS else 1.0
    return size_bytes * share


def elements(measure: str, size_bytes: int, devices: int) -> int:
    """How many float32 values such a message has.

    >>> elements("all_gather", 1024, devices=3), elements("sendrecv", 1024, devices=3)
    (258, 256)
    """
    values = size_bytes // all_reduce.FLOAT32_BYTES
    return -(-values // devices) * devices if measure in IN_PARTS else values


def rows(
    exchange: Any,
    make: Callable[[Callable[..., Repeat], int], Repeat],
    gather: rounds.Gather,
    devices: int,
    gradients_bytes: Iterable[int],
) -> Iterator[dict[str, Any]]:
    """Yield the rows of each collective; all processes call it together.

    Args:
        exchange: a file of `exchanges/`: dlbench/trainer/tensorflow/exchanges says what it defines.
        make: calls a function of that file with the strategy and so many float32 values.
        gather: of the processes' strategy.
        devices: of all processes.
        gradients_bytes: sizes of the gradients of the models.
    """
    sizes = all_reduce.sizes_bytes(gradients_bytes)
    for measure in OTHERS:
        operation = getattr(exchange, measure, None)
        if operation is None:
            reasons = getattr(exchange, "LACKS", {})
            yield _unknown(measure, reasons.get(measure, f"{exchange.__name__} does not define it"))
            continue
        for size in sizes:
            values = elements(measure, size, devices)
            try:
                repeat = make(operation, values)
                seconds = rounds.seconds_per_operation(repeat, gather, number=ROUNDS)
            except Exception as error:  # each framework has its own
                if size != sizes[0] or not _is_lacking(error):
                    raise
                yield _unknown(measure, terminal.message(str(error), 300))
                break
            moved = values * all_reduce.FLOAT32_BYTES
            yield rounds.timed(measure, moved, seconds, bus_bytes(measure, moved, devices))


def _unknown(measure, reason):
    return {"measure": measure, "unit": "GB/s", "unknown": reason}


def _is_lacking(error):
    """Whether the library lacks the collective: then it fails at once in all processes."""
    text = str(error).lower()
    return isinstance(error, NotImplementedError) or any(words in text for words in LACKING)
