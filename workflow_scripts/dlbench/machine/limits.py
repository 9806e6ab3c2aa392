"""How much of its node a process may use: CPUs, CPU time and memory.

Schedulers and container engines set limits on control groups, of version 1 or 2. The strictest
limit of a group and of those that contain it holds. "unlimited" means that there is no limit, None
that the limit is not known.
"""

import os
import resource
from pathlib import PurePosixPath
from typing import Any

from dlbench.machine.hardware import Files, expand

UNLIMITED = "unlimited"
OF_GROUPS = ("group_cpus", "cpu_time_cores", "memory_bytes")
MOST_BYTES = 1 << 60  # version 1 has a larger number where there is no limit


def read(files: Files, pid: int | str = "self") -> dict[str, Any]:
    """The limits of a process."""
    groups = files.ask("limits", lambda: _groups(files.text(f"proc/{pid}/cgroup"))) or {}
    mounts = files.ask("limits", lambda: _mounts(files.text(f"proc/{pid}/mountinfo"))) or {}
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "group_cpus": _least(files, "group_cpus", groups, mounts, _cpus),
        "cpu_time_cores": _least(files, "cpu_time_cores", groups, mounts, _cpu_time),
        "memory_bytes": _least(files, "memory_bytes", groups, mounts, _memory),
        "locked_memory_bytes": UNLIMITED if locked == resource.RLIM_INFINITY else locked,
    }


def _groups(text):
    """{controller: path of the group}, "" for version 2.

    >>> _groups("4:memory:/job\\n2:cpu,cpuacct:/\\n0::/user")
    {'memory': '/job', 'cpu': '/', 'cpuacct': '/', '': '/user'}
    """
    lines = (line.split(":", 2) for line in text.splitlines())
    return {name: path for _, names, path in lines for name in names.split(",")}


def _mounts(text):
    """{controller: (where it is mounted, which group that is)}, "" for version 2."""
    mounts = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        words, (kind, _, options) = before.split(), after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            names = options.split(",") if kind == "cgroup" else [""]
            mounts |= dict.fromkeys(names, (words[4].lstrip("/"), words[3]))
    return mounts


def _least(files, name, groups, mounts, read):
    """The strictest limit over both versions, of the group and of those that contain it."""
    limits = []
    for controller in ("", {"group_cpus": "cpuset", "memory_bytes": "memory"}.get(name, "cpu")):
        if controller in groups and controller in mounts:
            mount, top = mounts[controller]
            for place in _upwards(files, mount, top, groups[controller]):
                try:
                    limits.append(read(files, place, controller))
                except FileNotFoundError:
                    continue  # the controller is not enabled for this group
                except (OSError, ValueError, IndexError) as error:
                    files.unknown[f"limits.{name}"] = f"/{place}: {error}"
                    return None
    if not groups or not mounts:
        files.unknown[f"limits.{name}"] = "no control group is seen from here"
        return None
    numbers = [limit for limit in limits if limit is not None]
    return min(numbers, default=UNLIMITED)


def _upwards(files, mount, top, group):
    """Folders of a group and of those that contain it, as far as they are mounted here."""
    inner = PurePosixPath(group)
    if top != "/" and inner.is_relative_to(top):
        inner = PurePosixPath("/") / inner.relative_to(top)
    if not (files.root / mount / str(inner).lstrip("/")).is_dir():
        inner = PurePosixPath("/")  # inside a container its own group is mounted as the top
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
    return None if text == "max" or int(text) >= MOST_BYTES else int(text)
