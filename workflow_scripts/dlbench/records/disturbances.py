"""Decide whether others, or a quota, disturbed a run more than the config allows."""

import math
from typing import Any

# Share of a run's own disk traffic (journals, metadata, late writes) that is counted as others'.
UNATTRIBUTED_SHARE = 0.2
# A run whose items are in memory reads less than this and does not wait for a disk.
MIN_READ_BYTES_PER_S = 1e5
# Cores that daemons and the kernel use on an idle node, for each core of the node.
HOUSEKEEPING = 0.002


def describe_disturbance(values: dict[str, Any]) -> str:
    """What others used beyond the limits of the config, or a quota took; "" if nothing.

    Args:
        values: of the event `neighbours`; {} if the log has none.
    """
    share = values.get("share")
    reasons = [values["power_limit_changed"]] if values.get("power_limit_changed") else []
    if share is None:
        return "; ".join(reasons)
    others, cores = values.get("others_cpu_cores"), values.get("cores") or 0
    limit = cores_for_others(share, values.get("device_cores") or 0, cores)
    if others is not None and others - (values.get("resolution_cpu_cores") or 0) > limit:
        reasons.append(f"others used {describe_share(others, cores)}")
    throttled = values.get("quota_throttled_percent") or 0.0
    throttled_s, span_s = values.get("quota_throttled_s") or 0.0, values.get("span_s") or 0.0
    # Some kernels count too little time, so the share of periods is checked too.
    if throttled > 100 * share or throttled_s > limit * span_s:
        reasons.append(
            f"a quota of CPU time stopped the run's control group in {throttled:.0f} % of its "
            f"periods ({throttled_s:.1f} s, all CPUs added up, in {span_s:.1f} s)"
        )
    gpu_processes = values.get("other_gpu_processes")
    if gpu_processes:
        noun = "process" if gpu_processes == 1 else "processes"
        reasons.append(f"others had {gpu_processes} {noun} on a GPU of the run")
    memory, io = (values.get(f"{name}_pressure_percent") or 0 for name in ("memory", "io"))
    if memory > 100 * share:
        reasons.append(f"processes waited for memory {memory:.0f} % of the time")
    disk = values.get("others_disk_bytes_per_s") or 0
    own_disk = values.get("own_disk_bytes_per_s") or 0
    own_read = values.get("own_disk_read_bytes_per_s", math.inf) or 0  # earlier logs do not say it
    if (
        disk > UNATTRIBUTED_SHARE * own_disk
        and io > 100 * share
        and own_read >= MIN_READ_BYTES_PER_S
    ):
        reasons.append(
            f"others moved {disk / 1e6:.0f} MB/s to or from disks, for which processes waited "
            f"{io:.0f} % of the time"
        )
    return "; ".join(reasons)


def cores_for_others(share: float, device_cores: float, cores: float) -> float:
    """Cores that others may use: a share of the run's cores, plus housekeeping on all cores."""
    return share * device_cores + HOUSEKEEPING * cores


def describe_share(others: float, cores: float) -> str:
    return f"{others:.2f} of {cores} cores"
