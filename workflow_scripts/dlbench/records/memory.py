"""Peak memory of a run, and the memory available to it, for the summary of its record.

All peaks are of whole runs, start-up, warm-up and evaluations included.

- Device: the peaks of arrays and of the allocator, as the framework counts them
  (dlbench/trainer/device_memory.py); and the peak of memory in use on a GPU by NVML, at the
  samples, which includes the framework's libraries and other processes.
- Process: its peak resident set size, by the kernel.
- Dataset, if the run sets `page_cache`: the share of it in memory before it was opened.
- Available: the memory of a GPU, or the part of it that the framework may take, as with JAX; on
  CPUs that of the node, or of the control group if that is less.
"""

from typing import Any

from dlbench.log import event_fields

OF_DEVICES = ("peak_allocated_bytes_per_device", "peak_reserved_bytes_per_device")


def summary(logs: list[Any]) -> dict[str, Any]:
    """The numbers of a run, in bytes, of the device and the process with the highest peaks.

    A number is None if one of the processes does not report it.

    Args:
        logs: the parse_run.RankLog of each rank or copy.
    """
    ends = [log.end or {} for log in logs]
    used = [_of_nvml(log.samples) for log in logs]
    reasons = [reason for end in ends if (reason := end.get("device_memory_unknown"))]
    return {
        **{name: _most(_largest(end.get(name)) for end in ends) for name in OF_DEVICES},
        "peak_used_bytes_per_device": _most(used),
        "peak_memory_bytes": _most(end.get("peak_memory_bytes") for end in ends),
        "memory_limit_bytes": min(filter(None, map(_limit, logs)), default=None),
        "device_memory_unknown": reasons[0] if reasons else None,
        "page_cache_share": logs[0].page_cache.get("kept"),
    }


def _most(values):
    """The largest; None if one is not known."""
    values = list(values)
    return max(values) if values and None not in values else None


def _largest(values):
    return max(values, default=None) if values else None


def _of_nvml(samples):
    """Bytes in use on the fullest GPU of a process, at any of its samples."""
    readings = (gpu.get("memory_used_bytes") for s in samples for gpu in s.get("gpus") or ())
    return max((value for value in readings if value is not None), default=None)


def _limit(log):
    """Bytes that a process may use: of its smallest GPU, else of the node or control group."""
    limits = [(log.end or {}).get("device_memory_limit_bytes")]
    for machine in log.machines:
        of_gpus = [kind.get("memory_bytes") for kind in _gpus(machine["hardware"])]
        of_node = (machine["present"], machine["limits"], log.launch.get("limits") or {})
        limits += of_gpus or [part.get("memory_bytes") for part in of_node]
    # A missing limit is a text, and logs are not checked for that.
    return min((n for n in limits if event_fields.COUNT.accepts(n) and n), default=None)


def _gpus(hardware):
    """The kinds of GPUs in the facts of a machine, which may have any form."""
    gpus = hardware.get("gpus")
    kinds = gpus.get("kinds") if isinstance(gpus, dict) else None
    return [kind for kind in kinds if isinstance(kind, dict)] if isinstance(kinds, list) else []
