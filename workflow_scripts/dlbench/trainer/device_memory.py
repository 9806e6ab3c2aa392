"""The peak memory of devices, as the framework counts it.

- Allocated: by arrays, that is weights, gradients, optimizer state, activations and work space.
- Reserved: by the framework's allocator, whether in use or cached for later arrays.
- Both are peaks since the process started, evaluations and the choice of kernels included: JAX
  cannot reset its count, and the peak must fit wherever it occurs.
- What a framework does not count is None, with the reason. No framework counts what it takes of a
  CPU's memory; sampling.py records the resident set of the process instead.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from dlbench.common import terminal

MAX_CHARACTERS = 200  # of a reason


class Peak(NamedTuple):
    """Peaks in bytes of each device of a process, in the order of its devices.

    Attributes:
        allocated, reserved: None if the framework does not count it on all its devices.
        unknown: why some of it is not known; None if all is known.
        limit: the most bytes that the framework takes of a device; None if it has no such limit.
    """

    allocated: list[int] | None
    reserved: list[int] | None
    unknown: str | None
    limit: int | None = None


NOT_COUNTED = Peak(None, None, "the framework does not count it")


def read_peaks(
    devices: Iterable[Any], read: Callable[[Any], tuple[int | None, int | None]]
) -> Peak:
    """Read the peaks of some devices.

    Args:
        read: returns (allocated, reserved) of a device, None for what it does not count. If it
            raises, nothing is known, and the exception is the reason: no run fails because of it.
    """
    try:
        pairs = [read(device) for device in devices]
    except Exception as error:
        return Peak(
            None, None, terminal.message(f"{type(error).__name__}: {error}", MAX_CHARACTERS)
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
    """The values if there are any and all are known; None otherwise.

    An unknown value is -1 on some devices under JAX; the peak of a run is never 0.
    """
    counts = [int(value) for value in values if value is not None and value > 0]
    return counts if counts and len(counts) == len(values) else None
