"""What others used of a run's cores and of its node while it was measured, by kernel counters.

- Others are all processes but those of the run and of the workflow that started it. Their CPU time
  is the busy time of the CPUs that the run may use, less that of the run's processes.
- The busy time of a CPU is the elapsed time less its idle time, which the kernel measures; user and
  system times are only sampled at clock ticks. Interrupts belong to no process and are left out.
- The kernel adds the time of a process that ended to the parent that waited for it, so that a tree
  of processes loses none; if no process of the tree waited, its last known time is added here.
- New processes are found by listing /proc. Those outside of the tree are checked a few times.
- `Watch` takes a reading a second in the process that supervises the run; `summarise` compares the
  readings around the measured steps. An unknown value is None, with a reason in `unknown`.
- records/run_status.py decides whether that is more than the config allows.
- What was measured when is read from the logs right after a run, before they are checked, so only
  the needed lines are parsed.

Linux only; needs the standard library only.
"""

import contextlib
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.common import orphans
from dlbench.log import event_fields, event_log
from dlbench.machine import hardware, limits
from dlbench.machine.hardware import CPU, Files
from dlbench.records import run_status

TICK_S = 1 / os.sysconf("SC_CLK_TCK")  # the unit of times in /proc
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
SECTOR_BYTES = 512  # the unit of /proc/diskstats, independent of the disk
MAX_SAMPLES = 10  # after which a new process counts as none of the tree for good
RESOURCES = ("cpu", "memory", "io")


class Process(NamedTuple):
    """A line of /proc/PID/stat; times in ticks."""

    name: str
    parent: int
    own_ticks: int
    children_ticks: int  # of children that ended and for which it waited
    started: int
    resident_pages: int

    @property
    def ticks(self) -> int:
        """Time of the process and of its children that ended."""
        return self.own_ticks + self.children_ticks


def read_process(proc: Path, pid: int) -> Process:
    """A process by its number. Raises OSError, ValueError: no process has this number."""
    before, _, after = _content(f"{proc}/{pid}/stat").rpartition(b")")
    fields = after.split(None, 22)
    return Process(
        name=os.fsdecode(before.partition(b"(")[2]),
        parent=int(fields[1]),
        own_ticks=int(fields[11]) + int(fields[12]),
        children_ticks=int(fields[13]) + int(fields[14]),
        started=int(fields[19]),
        resident_pages=int(fields[21]),
    )


def _content(path):
    with open(path, "rb", buffering=0) as file:
        return file.read()


def read_processes(proc: Path) -> dict[int, Process]:
    """All visible processes, by their numbers."""
    processes = {}
    for pid in _pids(proc):
        with contextlib.suppress(OSError, ValueError):  # ended meanwhile
            processes[pid] = read_process(proc, pid)
    return processes


def _pids(proc):
    return set(map(int, filter(str.isdecimal, os.listdir(proc))))


def workflow_of(proc: Path, pid: int) -> int:
    """The PID of the outermost Snakemake that a process descends from; its own PID if none is."""
    outermost = pid
    with contextlib.suppress(OSError, ValueError):
        while pid > 1:
            command = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace")
            outermost = pid if _is_snakemake(command.split("\0")) else outermost
            pid = read_process(proc, pid).parent
    return outermost


def _is_snakemake(command):
    """Whether a command starts Snakemake.

    >>> _is_snakemake(["/x/python3", "-m", "snakemake", "-n"]), _is_snakemake(["vi", "snakemake"])
    (True, False)
    """
    name, *arguments = (argument.rpartition("/")[2] for argument in command[:3])
    return name == "snakemake" or (name.startswith("python") and "snakemake" in arguments)


class ProcessTree:
    """A process and its descendants, with those that carry a mark in their environment.

    `mark`: variables with their values, as in `processes.mark`; `disks`: whether to count bytes of
    disks.
    """

    def __init__(self, proc: Path, pid: int, mark: Mapping[str, str], disks: bool = True) -> None:
        self._counts_disks = disks
        self._proc = proc
        self.mark = mark
        self._members: dict[int, Process | None] = {pid: None}  # as at the last sample
        self._bytes: dict[int, tuple[int, int]] = {}  # that each read, and read or wrote, on disks
        self._ended_ticks, self._most_bytes = 0, (0, 0)
        self._young: dict[int, int] = {}  # new PIDs outside of the tree: samples that are left
        visible = read_processes(proc)
        self._listed = set(visible)
        children = [pid]
        while children:
            children = [
                number
                for number, process in visible.items()
                if number not in self._members and process.parent in self._members
            ]
            self._members |= dict.fromkeys(children)

    def __contains__(self, pid: int) -> bool:
        return pid in self._members

    def sample(self) -> tuple[float, tuple[int, int] | None, int]:
        """(CPU seconds so far, bytes of disks, number of processes active since the last sample).

        Bytes are (read, read or written), or None if they are not counted, or if the counters of a
        process are not readable.
        """
        self._adopt()
        now: dict[int, Process] = {}
        waited_for, active = 0, []
        for pid, before in self._members.items():
            with contextlib.suppress(OSError, ValueError):
                process = read_process(self._proc, pid)
                if before is None:
                    now[pid] = process
                    active.append(pid)
                elif process.started == before.started:
                    now[pid] = process
                    waited_for += process.children_ticks - before.children_ticks
                    if process.ticks > before.ticks:
                        active.append(pid)
        ended = [self._members[pid] for pid in self._members.keys() - now.keys()]
        self._ended_ticks += max(0, sum(p.ticks for p in ended if p) - waited_for)
        self._members = dict(now)
        seconds = (self._ended_ticks + sum(p.ticks for p in now.values())) * TICK_S
        return seconds, self._disks(active) if self._counts_disks else None, len(active)

    def resident_bytes(self) -> int:
        """Resident memory of the processes at the last sample; what they share counts for each."""
        return PAGE_BYTES * sum(p.resident_pages for p in self._members.values() if p)

    def _disks(self, active):
        try:
            self._bytes |= {pid: _disk_bytes(self._proc, pid) for pid in active}
        except FileNotFoundError:
            pass  # ended meanwhile
        except (OSError, ValueError):
            return None
        self._bytes = {pid: count for pid, count in self._bytes.items() if pid in self._members}
        sums = (sum(numbers) for numbers in zip((0, 0), *self._bytes.values(), strict=True))
        self._most_bytes = tuple(map(max, self._most_bytes, sums))
        return self._most_bytes

    def _adopt(self):
        """Add the new processes of the tree; a new process without the mark is checked again.

        A process has the mark once it executes its program, which takes a while in a container.
        """
        listed = _pids(self._proc)
        young = self._young | dict.fromkeys(listed - self._listed, MAX_SAMPLES)
        self._listed, self._young = listed, {}
        for pid in sorted(young.keys() - self._members.keys()):
            with contextlib.suppress(OSError, ValueError):  # ended meanwhile
                is_child = read_process(self._proc, pid).parent in self._members
                place = self._proc / str(pid)
                if is_child or (self.mark and orphans.has_variables(place, self.mark)):
                    self._members[pid] = None
                elif young[pid] > 1:
                    self._young[pid] = young[pid] - 1


def _disk_bytes(proc, pid):
    """(bytes that a process read, bytes that it read or wrote) on disks."""
    lines = (line.split(b": ") for line in _content(f"{proc}/{pid}/io").splitlines())
    values = {name: int(value) for name, value in lines}
    read, written = values[b"read_bytes"], values[b"write_bytes"] - values[b"cancelled_write_bytes"]
    return read, read + written


@dataclass(frozen=True)
class Cpus:
    """Times of some CPUs together, in seconds: idle, and taken by a hypervisor."""

    count: int
    idle_s: float
    steal_s: float


def cpu_times(proc: Path, allowed: Collection[int]) -> tuple[Cpus, Cpus]:
    """(the CPUs that this process may use, all CPUs of the node). Raises OSError, ValueError."""
    lines = (line.split() for line in (proc / "stat").read_bytes().splitlines())
    # user nice system idle iowait irq softirq steal
    times_by_cpu = {
        int(name[3:]): list(map(int, times[:8]))
        for name, *times in lines
        if name.startswith(b"cpu") and name != b"cpu"
    }
    chosen = [times for number, times in times_by_cpu.items() if number in allowed]
    if not chosen:
        raise ValueError("/proc/stat has none of the CPUs that this process may use")
    return _sum(chosen), _sum(times_by_cpu.values())


def _sum(times):
    return Cpus(
        count=len(times),
        idle_s=sum(sum(t[3:7]) for t in times) * TICK_S,
        steal_s=sum(t[7] for t in times if len(t) > 7) * TICK_S,
    )


def read_pressure_s(proc: Path, resource: str) -> float:
    """Seconds in which some process waited for cpu, memory or io. Raises OSError, ValueError."""
    _, *fields = (proc / "pressure" / resource).read_text().splitlines()[0].split()
    return int(dict(field.split("=") for field in fields)["total"]) / 1e6


def read_disk_bytes(root: Path) -> int:
    """Bytes that all disks read and wrote. Raises OSError, ValueError, IndexError."""
    lines = map(str.split, (root / "proc/diskstats").read_text().splitlines())
    return SECTOR_BYTES * sum(
        int(line[5]) + int(line[9]) for line in lines if _is_disk(root, line[2])
    )


def _is_disk(root, name):
    """Whether a name is a whole disk: not a partition, not stacked on others, not memory."""
    place = root / "sys/block" / name.replace("/", "!")
    if name.startswith(("loop", "ram", "zram")) or not place.is_dir():
        return False
    return not any((place / "slaves").glob("*"))


def has_kernels_stat(root: Path) -> bool:
    """Whether /proc/stat is the kernel's, not one that lxcfs mounts into a container."""
    with contextlib.suppress(OSError):
        lines = (root / "proc/self/mountinfo").read_text().splitlines()
        return all(line.split()[4] != "/proc/stat" for line in lines)
    return True


EVERY_S = 1.0
MAX_SHARE = 0.001  # of a core that watching may take, once it has used its allowance
ALLOWANCE_S = 0.1
MAX_READINGS = 7200  # then every second one is forgotten
FIRST_LOOK_S, LOOK_S = 0.3, 1.0  # at others, before a run starts
MAX_NAMES = 3
MIN_SEEN_SHARE = 0.8  # of the CPU time that the ranks say they used
GPU_PROCESSES_HIDDEN = "NVML lists not even the run's own processes"
UNTIMED = "its steps do not say when they were (t_s): what others used is that of the whole run"
LXCFS = "/proc/stat is one that a container is given, without the node's CPUs"


@dataclass(frozen=True)
class Reading:
    """Totals so far; None if they cannot be read."""

    at_s: float
    utc: str
    ours: Cpus | None
    node: Cpus | None
    own_s: float | None
    own_read_bytes: int | None
    own_bytes: int | None
    moved: int
    pressure_s: tuple[float | None, ...]
    disk_bytes: int | None
    clock_mhz: float | None
    throttled: limits.Throttled | None


class Watch:
    """Readings of this node from now on; `set_run` says of which run.

    `root`: the folder in which proc and sys are; `pid`: of the process that supervises the run,
    None: this one; `cpus`: numbers of those that the run may use, None: that this process may use.
    """

    def __init__(
        self, root: str | Path = "/", pid: int | None = None, cpus: Iterable[int] | None = None
    ):
        self.unknown: dict[str, str] = {}
        self.waited_s = 0.0
        self._files, self._root = Files(root), Path(root)
        self._proc = self._root / "proc"
        self._share: float | None = None
        self._device_cores: int | None = None
        self._cpus = frozenset(cpus or os.sched_getaffinity(0))
        self._turn, self._spent_s = 0, 0.0
        self._own = self._get(
            "others_cpu_cores",
            lambda: ProcessTree(self._proc, workflow_of(self._proc, pid or os.getpid()), {}),
        )
        self._throttled = self._get("cpu_throttle_count", self._throttle_count)
        self._throttle_files = self._get(
            "quota_throttled_s", lambda: limits.throttle_files(self._files)
        )
        self._load = None
        self._readings = [self._read()]

    def set_run(self, mark: dict[str, str], share: float | None, device_cores: int | None) -> None:
        """Set what was unknown when the watch started.

        Args:
            mark: of the run's processes, as in `processes.mark`.
            share: what others may use, as a share of `device_cores`; None: never judged.
            device_cores: how many cores the run's devices on a node have; None: all that it may
                use.
        """
        self._share, self._device_cores = share, device_cores
        if self._own:
            self._own.mark = mark

    def read_if_due(self) -> None:
        """Take a reading if the last one is older than EVERY_S."""
        now = time.monotonic()
        affordable = ALLOWANCE_S + MAX_SHARE * (now - self._readings[0].at_s)
        if now - self._readings[-1].at_s >= EVERY_S and self._spent_s < affordable:
            started = time.thread_time()
            self._readings.append(self._read())
            self._spent_s += time.thread_time() - started
            if len(self._readings) > MAX_READINGS:
                del self._readings[1:-1:2]

    def wait_for_quiet(
        self, limit_s: float, stopped: Callable[[], str], report: Callable[[str], None]
    ) -> bool:
        """Wait until others use less than they may, `limit_s` is over, or `stopped()` is true.

        The time since the watch started counts as the first look.

        Returns False if others still used too much after `limit_s`.
        """
        started, quiet = time.monotonic(), None
        if limit_s and self._share is not None and self._own:
            end = started + limit_s
            quiet = self._get("others_cpu_cores", lambda: self._wait(end, stopped, report))
        self.waited_s = time.monotonic() - started
        self._load = self._get(
            "load_before_1min", lambda: float(self._files.text("proc/loadavg").split()[0])
        )
        self._readings = [self._read()]
        return quiet is not False

    def _wait(self, deadline, stopped, report):
        first = self._readings[0]
        _sleep(first.at_s + FIRST_LOOK_S - time.monotonic(), stopped)
        use = _Use(first, self._read())
        if use.others is None:
            return True
        limit = run_status.cores_for_others(self._share, self._device_cores or use.cores, use.cores)
        if use.others <= limit:
            return True
        # The first look is too short to be sure.
        before = read_processes(self._proc)
        waiting_since = None
        while not stopped():
            last = self._readings[-1] if waiting_since else use.last
            _sleep(LOOK_S, stopped)
            self._readings.append(self._read())
            use = _Use(last, self._readings[-1])
            if use.others - use.resolution <= limit:
                if waiting_since:
                    report(f"it is quiet after {time.monotonic() - waiting_since:.0f} s")
                return True
            over = time.monotonic() >= deadline
            used = run_status.describe_share(use.others, use.cores)
            if not waiting_since and not over:
                waiting_since = use.first.at_s
                names = self._busiest(before)
                listed = f" ({', '.join(names)})" if names else ""
                report(f"waits for quiet: others use {used}{listed}")
            if over:
                report(f"starts beside others, which use {used}")
                return False
        return True

    def _busiest(self, before):
        """Names and ids of others' processes that used most CPU time since `before`."""
        now = read_processes(self._proc)
        used = {
            pid: process.own_ticks - (before[pid].own_ticks if pid in before else 0)
            for pid, process in now.items()
            if pid not in self._own
        }
        most = sorted((pid for pid in used if used[pid] > 0), key=used.get, reverse=True)
        return [f"{now[pid].name} {pid}" for pid in most[:MAX_NAMES]]

    def summarise(self, log: Path) -> dict[str, Any]:
        """Fields of the event `neighbours`.

        `log`: of rank 0, complete; those of other ranks and copies lie beside it.
        """
        use = self._get("neighbours", lambda: self._summary(log)) or {"span_s": 0.0}
        use |= {"host": hardware.host()} if "host" not in use else {}
        return {
            "waited_for_quiet_s": self.waited_s,
            **{key: round(v, 6) if isinstance(v, float) else v for key, v in use.items()},
            "unknown": {k: why for k, why in self.unknown.items() if use.get(k) is None},
        }

    def _summary(self, log):
        self._readings.append(self._read())
        parts = self._get("measured", lambda: read_parts(log)) or []
        use = _Use(*self._around(parts))
        first, last = use.first, use.last
        throttled = self._get("cpu_throttle_count", self._throttle_count)
        clocks = [r.clock_mhz for r in self._readings if first.at_s <= r.at_s <= last.at_s]
        clocks = [clock for clock in clocks if clock is not None]
        summary = {
            "span_s": use.span_s,
            "host": hardware.host(),
            "others_cpu_cores": use.others,
            "cores": use.cores,
            "node_others_cpu_cores": use.node_others,
            "node_cores": last.node and last.node.count,
            "resolution_cpu_cores": use.resolution,
            "steal_cpu_cores": use.rate(
                first.ours and first.ours.steal_s, last.ours and last.ours.steal_s
            ),
            **{
                f"{name}_pressure_percent": use.rate(before, after, 100)
                for name, before, after in zip(
                    RESOURCES, first.pressure_s, last.pressure_s, strict=True
                )
            },
            "others_disk_bytes_per_s": use.others_disk,
            "own_disk_read_bytes_per_s": use.rate(first.own_read_bytes, last.own_read_bytes),
            "own_disk_bytes_per_s": use.rate(first.own_bytes, last.own_bytes),
            "cpu_clock_mhz": statistics.fmean(clocks) if clocks else None,
            "cpu_throttle_count": _difference(throttled, self._throttled),
            "quota_throttled_percent": use.throttled_share and 100 * use.throttled_share,
            "quota_throttled_s": use.throttled_s,
            "load_before_1min": self._load,
            "waited_for_quiet_s": self.waited_s,
            "share": self._share,
            "device_cores": self._device_cores or use.cores,
            "other_gpu_processes": other_gpu_processes(parts),
        }
        if any(part.untimed for part in parts):
            self.unknown["measured"] = UNTIMED
        if any(part.gpus for part in parts) and summary["other_gpu_processes"] is None:
            self.unknown["other_gpu_processes"] = GPU_PROCESSES_HIDDEN
        self._withhold_hidden(summary, parts)
        self._take_busiest_node(summary, parts)
        return summary

    def _around(self, parts):
        """The last reading before the measured steps, and the first one after them."""
        known = [part for part in parts if part.started and part.finished]
        first, last = self._readings[0], self._readings[-1]
        if known:
            started = min(part.started for part in known)
            ended = max(part.finished for part in known)
            before = [reading for reading in self._readings if reading.utc <= started]
            after = [reading for reading in self._readings if reading.utc >= ended]
            first, last = (before or [first])[-1], (after or [last])[0]
        # All readings, if somebody set the clock meanwhile.
        return (first, last) if first.at_s < last.at_s else (self._readings[0], self._readings[-1])

    def _withhold_hidden(self, summary, parts):
        """Clear what others used if part of it may be the run's own, or cannot be seen."""
        here = _here(parts, summary["host"])
        logged_s = sum(part.cpu_time_s or 0 for part in here)
        own_s = _difference(self._readings[-1].own_s, self._readings[0].own_s) or 0
        quota = limits.read(Files(self._root))["cpu_time_cores"]
        names = ("others_cpu_cores", "node_others_cpu_cores")
        reason = ""
        if not has_kernels_stat(self._root):
            reason = LXCFS
        elif own_s < MIN_SEEN_SHARE * logged_s - 10 * TICK_S:
            reason = (
                f"the run's processes used {logged_s:.1f} s of CPU, of which {own_s:.1f} s are "
                "seen from here: they are in a namespace of their own, or started by a service"
            )
        elif isinstance(quota, float | int) and (summary["node_cores"] or 0) > quota:
            cores = summary["node_cores"]
            reason = f"a quota of {quota:g} of {cores} cores: others may use the rest"
            names = names[:1]
        for name in names if reason else ():
            summary[name] = None
            self.unknown[name] = reason

    def _take_busiest_node(self, summary, parts):
        """Of several nodes, report the one whose others used most."""
        here = _here(parts, summary["host"])
        for host in sorted({part.host for part in parts if part not in here}):
            try:
                others, cores = cores_of_others([p for p in parts if p.host == host])
            except ValueError as error:
                summary["others_cpu_cores"] = None
                self.unknown["others_cpu_cores"] = f"{host}: {error}"
                return
            if summary["others_cpu_cores"] is not None and others > summary["others_cpu_cores"]:
                summary |= {"host": host, "others_cpu_cores": others, "cores": cores}

    def _read(self):
        cpus = self._get("others_cpu_cores", lambda: cpu_times(self._proc, self._cpus))
        ours, node = cpus or (None, None)
        at_s, utc = time.monotonic(), event_log.utc_now()
        usage = self._own and self._get("others_cpu_cores", self._own.sample)
        own_s, disks, moved = usage or (None, None, 0)
        own_read_bytes, own_bytes = disks or (None, None)
        return Reading(
            *(at_s, utc, ours, node, own_s, own_read_bytes, own_bytes, moved),
            pressure_s=tuple(
                self._get(f"{name}_pressure_percent", lambda n=name: read_pressure_s(self._proc, n))
                for name in RESOURCES
            ),
            disk_bytes=self._get("others_disk_bytes_per_s", lambda: read_disk_bytes(self._root)),
            clock_mhz=self._get("cpu_clock_mhz", self._clock_mhz),
            throttled=self._get("quota_throttled_s", self._quota_throttled),
        )

    def _clock_mhz(self):
        """The clock of one CPU, the next one at each call: reading one may take 20 ms."""
        if "cpu_clock_mhz" in self.unknown:
            return None
        self._turn += 1
        cpu = sorted(self._cpus)[self._turn % len(self._cpus)]
        return int(self._files.text(f"{CPU}/cpu{cpu}/cpufreq/scaling_cur_freq")) / 1000

    def _throttle_count(self):
        """How often the CPUs were throttled for heat."""
        places = (f"{CPU}/cpu{cpu}/thermal_throttle" for cpu in sorted(self._cpus))
        return sum(int(self._files.text(f"{place}/core_throttle_count")) for place in places)

    def _quota_throttled(self):
        places = self._throttle_files
        return None if places is None else limits.throttled(self._files, places)

    def _get(self, name, answer):
        """The value of `answer()`; None if it cannot be read, with the reason in `unknown`."""
        value = self._files.fact(name, answer)
        self.unknown |= self._files.unknown
        return value


class _Use:
    """What was used between two readings, in cores; None where a reading lacks the value."""

    def __init__(self, first, last):
        self.first, self.last = first, last
        self.span_s = last.at_s - first.at_s
        own_cores = self.rate(first.own_s, last.own_s)
        self.others = self._others(first.ours, last.ours, own_cores)
        self.node_others = self._others(first.node, last.node, own_cores)
        self.cores = last.ours and last.ours.count
        counts = [each or (None, None, None) for each in (first.throttled, last.throttled)]
        periods, stopped, self.throttled_s = map(_difference, counts[1], counts[0])
        self.throttled_share = None if periods is None else min(1.0, stopped / max(1, periods))
        disk = self.rate(first.disk_bytes, last.disk_bytes)
        own_disk = self.rate(first.own_bytes, last.own_bytes)
        self.others_disk = None if None in (disk, own_disk) else max(0.0, disk - own_disk)

    @property
    def resolution(self):
        """Three standard deviations of the error from counting whole ticks, in cores.

        The difference of two times has an error with standard deviation tick / sqrt(6). There is
        one time for each CPU, and two (user and system) for each process that ran.
        """
        if not self.last.ours:
            return None
        times = self.last.ours.count + 2 * max(self.first.moved, self.last.moved)
        return 3 * TICK_S * math.sqrt(times / 6) / self.span_s

    def rate(self, before, after, times=1):
        return None if None in (before, after) else times * (after - before) / self.span_s

    def _others(self, before, after, own_cores):
        """Busy time less that of our processes, and at least the stolen time."""
        if None in (before, after, own_cores):
            return None
        busy = after.count - (after.idle_s - before.idle_s) / self.span_s
        return max(busy - own_cores, (after.steal_s - before.steal_s) / self.span_s, 0.0)


def _here(parts, host):
    """The parts of this node; all of them if there is one node, whatever its name in the logs."""
    hosts = {part.host for part in parts} - {None}
    return [part for part in parts if len(hosts) < 2 or part.host in (None, host)]


def _difference(after, before):
    return None if None in (before, after) else after - before


def _sleep(seconds, stopped):
    """Sleep so long, or until `stopped()`."""
    end = time.monotonic() + seconds
    while not stopped() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.1))


STEP, MEASURED = b'{"event": "step"', b'"warm_up": false'
EVENTS = tuple(
    f'{{"event": "{name}"'.encode() for name in ("run_start", "resume", "machine", "sample")
)
END = b'{"event": "run_end"'


@dataclass
class Part:
    """The measured part of one rank or copy. Dates are as event_log.utc_now writes them.

    `untimed`: its steps have no times, as those of some programs of others.
    """

    host: str | None = None
    started: str | None = None
    finished: str | None = None
    untimed: bool = False
    cpu_time_s: float | None = None
    machine: dict[str, Any] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)  # during the measured steps

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The readings of GPUs in all samples."""
        return [gpu for sample in self.samples for gpu in sample.get("gpus") or ()]


def read_parts(log: Path) -> list[Part]:
    """The measured part of each rank or copy, whose logs lie beside that of rank 0."""
    return [_part(path) for path in event_log.rank_paths(log)]


def _part(path):
    part, zero, first, last, samples = Part(), None, None, None, []
    with open(path, "rb") as file:
        for line in file:
            if line.startswith(STEP):
                if MEASURED in line:
                    first, last = first or line, line
            elif line.startswith(EVENTS):
                event = json.loads(line)
                kind = event["event"]
                if kind == "sample":
                    samples.append(event)
                elif kind == "machine":
                    part.machine = event
                else:
                    # The steps before a resume belong to another supervisor.
                    zero, first = (event["t_utc"], event.get("t_s", 0.0)), None
                    part.host = event.get("host", part.host)
            elif line.startswith(END):
                part.cpu_time_s = json.loads(line).get("cpu_time_s")
    if zero and first:
        first, last = json.loads(first), json.loads(last)
        part.untimed = "t_s" not in first or "t_s" not in last
    if zero and first and not part.untimed:
        started_s = first["t_s"] - first["step_time_s"] * first.get("window_steps", 1)
        part.started, part.finished = _date(zero, started_s), _date(zero, last["t_s"])
        part.samples = [s for s in samples if started_s <= s["t_s"] <= last["t_s"]]
    return part


def _date(zero, t_s):
    """The date of a time on a log's clock, of which `zero` is a (date, time)."""
    date, then_s = zero
    shifted = datetime.strptime(date, event_fields.UTC_FORMAT) + timedelta(seconds=t_s - then_s)
    return shifted.strftime(event_fields.UTC_FORMAT)


def other_gpu_processes(parts: list[Part]) -> int | None:
    """The most foreign processes that a GPU of the run had at once; None if unknown."""
    counts = [gpu.get("other_gpu_processes") for part in parts for gpu in part.gpus]
    return max((count for count in counts if count is not None), default=None)


def cores_of_others(parts: list[Part]) -> tuple[float, int]:
    """(cores that other processes used, all cores) of a node, by the samples of all ranks on it.

    Raises ValueError: it cannot be computed from the samples.
    """
    of_node = [s["node_cpu_percent"] for p in parts for s in p.samples if s.get("node_cpu_percent")]
    machine = next((part.machine for part in parts if part.machine), {})
    cores = ((machine.get("hardware") or {}).get("cpu") or {}).get("threads")
    if not of_node or not cores:
        raise ValueError("its ranks sampled no CPU while they were measured")
    allowed = machine["limits"].get("group_cpus"), machine["limits"].get("cpu_time_cores")
    if any(isinstance(most, int | float) and most < cores for most in allowed):
        raise ValueError("its ranks may use a part of it only, and their samples are of all of it")
    of_ranks = [[s["cpu_percent"] for s in p.samples if s.get("cpu_percent")] for p in parts]
    rank_cores = sum(statistics.fmean(values) for values in of_ranks if values) / 100
    return max(0.0, statistics.fmean(of_node) / 100 * cores - rank_cores), cores
