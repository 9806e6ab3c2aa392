"""The limits of a process on its node: CPUs, CPU time and memory.

Schedulers and container engines limit control groups (cgroups), of version 1 or 2. The limits of a
group and of all its parents apply, so the strictest of them is reported: "unlimited" if there is
none, None if it is not known.
"""

import math
import os
import resource
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from dlbench.machine.hardware import Files, expand

THREADS = "DLBENCH_THREADS"  # variable that machine/binding.py sets
UNLIMITED = "unlimited"
NO_GROUP = "no control group is seen from here"
OF_GROUPS = ("group_cpus", "cpu_time_cores", "memory_bytes")
MAX_BYTES = 1 << 60  # version 1 has a larger number where there is no limit


class Throttled(NamedTuple):
    """How a quota of CPU time throttled a group since the group was created.

    Attributes:
        periods: number of the quota's periods in which the group ran.
        stopped: number of these periods in which it had used up its quota.
        time_s: how long it was throttled, summed over CPUs. Linux 6.18 counts too little.
    """

    periods: int = 0
    stopped: int = 0
    time_s: float = 0.0


def read(files: Files, pid: int | str = "self") -> dict[str, Any]:
    """The limits of a process."""
    groups = files.fact("limits", lambda: _groups(files.text(f"proc/{pid}/cgroup"))) or {}
    mounts = files.fact("limits", lambda: _mounts(files.text(f"proc/{pid}/mountinfo"))) or {}
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "group_cpus": _strictest(files, "group_cpus", groups, mounts, _cpus),
        "cpu_time_cores": _strictest(files, "cpu_time_cores", groups, mounts, _cpu_time),
        "memory_bytes": _strictest(files, "memory_bytes", groups, mounts, _memory),
        "locked_memory_bytes": UNLIMITED if locked == resource.RLIM_INFINITY else locked,
    }


def usable_cores(files: Files | None = None) -> tuple[int, float | None]:
    """(number of cores that this process may use, the quota of CPU time if that is the limit).

    A quota that is not a whole number is rounded down, to at least one core.
    """
    cores = len(os.sched_getaffinity(0))
    quota = read(files or Files())["cpu_time_cores"]
    if isinstance(quota, float | int) and quota < cores:
        return max(1, math.floor(quota)), quota
    return cores, None


def usable_threads() -> int:
    """How many threads or workers are worth starting.

    This is the process's share of cores if it was bound near its GPU, else all CPUs that it may
    use.
    """
    return int(os.environ.get(THREADS, 0)) or len(os.sched_getaffinity(0))


def throttle_files(files: Files) -> list[str]:
    """The files that count how often a quota throttled this process, for `throttled`.

    They belong to its group and to the parents of that, as far as these have a quota.

    Raises OSError, ValueError: no control group is seen from here.
    """
    groups = _groups(files.text("proc/self/cgroup"))
    mounts = _mounts(files.text("proc/self/mountinfo"))
    if not groups or not mounts:
        raise ValueError(NO_GROUP)
    places = (f"{place}/cpu.stat" for _, place in _places(files, groups, mounts, "cpu"))
    return [place for place in places if _throttled(files, place)]


def throttled(files: Files, places: Sequence[str]) -> Throttled:
    """How a quota throttled a process so far. Raises OSError, ValueError.

    `places`: what throttle_files returned.
    """
    groups = [group for place in places if (group := _throttled(files, place))]
    return Throttled(
        max((group.periods for group in groups), default=0),
        sum(group.stopped for group in groups),
        sum(group.time_s for group in groups),
    )


def _throttled(files, place):
    """The Throttled of one group; None if the file is missing or has no such counts."""
    try:
        lines = (line.split() for line in files.text(place).splitlines())
    except FileNotFoundError:
        return None
    counts = {name: int(count) for name, count, *_ in lines}
    if "nr_throttled" not in counts:
        return None
    spent_s = counts.get("throttled_usec", 0) / 1e6 + counts.get("throttled_time", 0) / 1e9
    return Throttled(counts["nr_periods"], counts["nr_throttled"], spent_s)


def _groups(text):
    """{controller: path of the group}, "" for version 2.

    >>> _groups("4:memory:/job\\n2:cpu,cpuacct:/\\n0::/user")
    {'memory': '/job', 'cpu': '/', 'cpuacct': '/', '': '/user'}
    """
    lines = (line.split(":", 2) for line in text.splitlines())
    return {name: path for _, names, path in lines for name in names.split(",")}


def _mounts(text):
    """{controller: (mount point, the group that is mounted there)}, "" for version 2."""
    mounts = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            names = options.split(",") if kind == "cgroup" else [""]
            mounts |= dict.fromkeys(names, (fields[4].lstrip("/"), fields[3]))
    return mounts


def _strictest(files, name, groups, mounts, read):
    """The strictest limit of a group and its parents, over both versions."""
    limits = []
    of_version_1 = {"group_cpus": "cpuset", "memory_bytes": "memory"}.get(name, "cpu")
    for controller, place in _places(files, groups, mounts, of_version_1):
        try:
            limits.append(read(files, place, controller))
        except FileNotFoundError:
            continue  # the controller is not enabled for this group
        except (OSError, ValueError, IndexError) as error:
            files.unknown[f"limits.{name}"] = f"/{place}: {error}"
            return None
    if not groups or not mounts:
        files.unknown[f"limits.{name}"] = NO_GROUP
        return None
    numbers = [limit for limit in limits if limit is not None]
    return min(numbers, default=UNLIMITED)


def _places(files, groups, mounts, of_version_1):
    """(controller, folder) of a process's groups and their parents, in both versions."""
    for controller in ("", of_version_1):
        if controller in groups and controller in mounts:
            mount, top = mounts[controller]
            for place in _upwards(files, mount, top, groups[controller]):
                yield controller, place


def _upwards(files, mount, top, group):
    """Folders of a group and its parents, as far as they are mounted here."""
    inner = PurePosixPath(group)
    if top != "/" and inner.is_relative_to(top):
        inner = PurePosixPath("/") / inner.relative_to(top)
    if not (files.root / mount / str(inner).lstrip("/")).is_dir():
        inner = PurePosixPath("/")  # in a container its own group is mounted as the root
    for place in (inner, *inner.parents):
        yield f"{mount}/{str(place).lstrip('/')}".rstrip("/")


def _cpus(files, place, controller):
    names = ("cpuset.cpus.effective",) if not controller else ("cpuset.effective_cpus",)
    for name in (*names, "cpuset.cpus"):
        try:
            return len(expand(files.text(f"{place}/{name}"))) or None
        except FileNotFoundError:
            continue
    raise FileNotFoundError(place)


def _cpu_time(files, place, controller):
    if not controller:
        quota, period = files.text(f"{place}/cpu.max").split()
        return None if quota == "max" else int(quota) / int(period)
    quota = int(files.text(f"{place}/cpu.cfs_quota_us"))
    return None if quota < 0 else quota / int(files.text(f"{place}/cpu.cfs_period_us"))


def _memory(files, place, controller):
    text = files.text(f"{place}/{'memory.limit_in_bytes' if controller else 'memory.max'}")
    return None if text == "max" or int(text) >= MAX_BYTES else int(text)
