"""Repeats until a combination's throughput is known well enough.

    repeats: {target_interval: 0.01, min: 3, max: 10}

All `max` repeats are runs of the study. One above `min` waits for those before it and is recorded
as skipped where their interval is narrow enough already, or where none of them ended well. So no
run is done twice, whatever is changed later: a narrower interval trains further repeats only.

Intervals are those of dlbench/statistics.py: Student's t on the logarithm of the throughput, 95 %.
Looking after each repeat and stopping at a narrow one makes them cover somewhat less than that
(tests/unit/test_repeating.py measures by how much).

Runs inside images too, so it needs the standard library only.
"""

import dataclasses
import math
import statistics
from dataclasses import dataclass

from dlbench import records, site
from dlbench.eventlog import ENDED_WELL

# Student's t, 97.5 % quantile, for 1 to 30 degrees of freedom; the tests compare them with SciPy's.
T_975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """When to stop repeating: at a half width of `interval`, relative; not before `fewest`."""

    interval: float
    fewest: int


def wanted(repeats):
    """(how many runs a combination has at most, its Target or None) from the config's `repeats`."""
    if isinstance(repeats, int):
        return repeats, None
    return repeats["max"], Target(repeats["target_interval"], repeats["min"])


def skip_reason(run, devices, study):
    """Why a run of a study is not done on this machine, or need not be done; None where it is."""
    reason = site.skip_reason(run, devices, study.images)
    if not reason and run.id in study.targets:
        return not_needed(earlier(run), study.targets[run.id])
    return reason


def earlier(run):
    """The ids of the repeats before this one."""
    return [dataclasses.replace(run, repeat=number).id for number in range(1, run.repeat)]


def not_needed(run_ids, target):
    """Why no further repeat is needed after some, in words; None where one is, or may be.

    Args:
        run_ids: of the repeats so far, in their order.
    """
    values = []
    for number, run_id in enumerate(run_ids, start=1):
        try:
            record = records.read(records.folder(run_id) / "run.json")
        except records.RecordError:
            return None  # still to be done
        if record["status"] in ENDED_WELL:
            values.append(record["summary"]["images_per_second"])
        if number < target.fewest:
            continue
        if not values:
            return f"not needed: none of the first {number} repeats ended well"
        reached = half_width(values)
        if reached is not None and reached <= target.interval:
            return (
                f"not needed: the throughput is known to {reached:.2%} after {number} repeats, "
                f"target_interval is {target.interval:.2%}"
            )
    return None


def half_width(values):
    """Half of the 95 % interval of a geometric mean, relative to it; None for fewer than two.

    >>> half_width([100.0, 100.0, 100.0])
    0.0
    """
    if not 2 <= len(values) <= len(T_975) + 1:
        return None
    logs = [math.log(value) for value in values]
    return math.expm1(T_975[len(logs) - 2] * statistics.stdev(logs) / math.sqrt(len(logs)))
