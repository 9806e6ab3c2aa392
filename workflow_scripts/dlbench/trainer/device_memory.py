"""How much memory of its devices a framework took at most, by its own count.

- Allocated: by arrays, that is weights, gradients, optimizer state, activations and work space.
- Reserved: what its allocator took from the device, be it in use or kept for arrays to come.
- Both are peaks since the process began, evaluations and the choice of kernels included: JAX cannot
  begin its count anew, and what a process needs anywhere must fit.
- What a framework does not count is None, with its own word for it. None of the three counts what
  it takes of a CPU's memory; there the resident set of the process stands (sampling.py).
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from dlbench.common import terminal

MOST_CHARACTERS = 200  # characters of a reason


class Peak(NamedTuple):
    """Peaks in bytes of each device of a process, in the order of its devices.

    Attributes:
        allocated, reserved: None where the framework does not count that of all its devices.
        unknown: why some of it is not known; None if all is.
        limit: bytes that the framework takes of a device at most; None where it does not say so.
    """

    allocated: list[int] | None
    reserved: list[int] | None
    unknown: str | None
    limit: int | None = None


NOT_COUNTED = Peak(None, None, "the framework does not count it")


def read_peaks(
    devices: Iterable[Any], read: Callable[[Any], tuple[int | None, int | None]]
) -> Peak:
    """The peaks of some devices.

    Args:
        read: gives (allocated, reserved) of a device, None for what it does not count. Whatever it
            raises is the reason why nothing is known: no run fails for what it took.
    """
    try:
        pairs = [read(device) for device in devices]
    except Exception as error:
        return Peak(
            None, None, terminal.message(f"{type(error).__name__}: {error}", MOST_CHARACTERS)
        )
    allocated, reserved = (_whole([pair[place] for pair in pairs]) for place in (0, 1))
    if allocated is None and reserved is None:
        return NOT_COUNTED
    names = {"what is allocated": allocated, "what is reserved": reserved}
    missing = [name for name, values in names.items() if values is None]
    unknown = f"the framework does not count {missing[0]}" if missing else None
    return Peak(allocated, reserved, unknown)


def fields(peak: Peak) -> dict[str, Any]:
    """The fields of run_end."""
    return {
        "peak_allocated_bytes_per_device": peak.allocated,
        "peak_reserved_bytes_per_device": peak.reserved,
        "device_memory_unknown": peak.unknown,
        "device_memory_limit_bytes": peak.limit,
    }


def _whole(values: list[int | None]) -> list[int] | None:
    """The values if there are some and all were counted.

    Where nobody counted, JAX has -1 of some devices and TensorFlow 0 of a CPU.
    """
    counts = [int(value) for value in values if value is not None and value > 0]
    return counts if counts and len(counts) == len(values) else None
