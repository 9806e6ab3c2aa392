"""CPU time and disk traffic of a node and of the processes of a run, by the kernel's counters.

- The busy time of a CPU is the elapsed time less its idle time, which the kernel measures; user and
  system times are only sampled at clock ticks. Interrupts belong to no process and are left out.
- The kernel adds the time of a process that ended to the parent that waited for it, so that a tree
  of processes loses none; if no process of the tree waited, its last known time is added here.
- New processes are found by their PIDs, which only grow, and each is checked once.

Linux only.
"""

import contextlib
import os
import weakref
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

TICK_S = 1 / os.sysconf("SC_CLK_TCK")  # the unit of times in /proc
READ_BYTES = 4096  # at once
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
SECTOR_BYTES = 512  # the unit of /proc/diskstats, independent of the disk
MAX_NEW = 500  # PIDs since the last sample; listing all processes is cheaper than trying more
MAX_SAMPLES = 10  # after which a new process counts as none of the tree for good
CHECKED_AT = (10, 9, 1)  # how many of these are left where it is checked
RESOURCES = ("cpu", "memory", "io")


class Process(NamedTuple):  # which is made in a third of the time of a dataclass
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


def read_process(proc: Path, pid: int | str) -> Process:
    """A process by its number.

    Raises:
        OSError, ValueError: no process has this number.
    """
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
    """The content of a file of the kernel, in a quarter of the time of Path.read_bytes."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(file, READ_BYTES)]
        while len(parts[-1]) == READ_BYTES:
            parts.append(os.read(file, READ_BYTES))
    finally:
        os.close(file)
    return b"".join(parts)


def read_processes(proc: Path) -> dict[int, Process]:
    """All visible processes, by their numbers."""
    processes = {}
    for name in filter(str.isdecimal, os.listdir(proc)):
        with contextlib.suppress(OSError, ValueError):  # ended meanwhile
            processes[int(name)] = read_process(proc, name)
    return processes


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

    Args:
        proc: the folder /proc.
        pid: of the process at the top of the tree.
        mark: variables with their values, as in `leftovers.mark`.
        disks: whether to count the bytes of disks.
    """

    def __init__(self, proc: Path, pid: int, mark: Mapping[str, str], disks: bool = True) -> None:
        self._counts_disks = disks
        self._proc = proc
        self.mark = mark
        self._members: dict[int, Process | None] = {pid: None}  # as at the last sample
        self._bytes: dict[int, tuple[int, int]] = {}  # that each read, and read or wrote, on disks
        self._ended_ticks, self._most_bytes = 0, (0, 0)
        self._young: dict[int, int] = {}  # new PIDs outside of the tree: samples that are left
        self._load: int | None = None  # stays open: it is read at each sample
        with contextlib.suppress(OSError):
            self._load = os.open(proc / "loadavg", os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._load)
        self._last = self._newest_pid()
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
        young = self._young | dict.fromkeys(self._new_pids(), MAX_SAMPLES)
        self._young = {}
        for pid in sorted(young.keys() - self._members.keys()):
            if young[pid] not in CHECKED_AT:
                self._young[pid] = young[pid] - 1
                continue
            with contextlib.suppress(OSError, ValueError):
                parent = read_process(self._proc, pid).parent
                if parent in self._members or self._is_marked(pid):
                    if self._is_process(pid):
                        self._members[pid] = None
                elif young[pid] > 1:
                    self._young[pid] = young[pid] - 1

    def _new_pids(self):
        """The PIDs and thread ids that are new since the last sample."""
        before, self._last = self._last, self._newest_pid()
        if before and before <= self._last <= before + MAX_NEW:
            new = set(range(before + 1, self._last + 1))
        else:
            listed = set(map(int, filter(str.isdecimal, os.listdir(self._proc))))
            new, self._listed = listed - self._listed, listed
        return new

    def _newest_pid(self):
        """The newest PID or thread id; 0 if it is not known."""
        if self._load is None:
            return 0
        try:
            return int(os.pread(self._load, READ_BYTES, 0).split()[4])
        except (OSError, ValueError, IndexError):
            return 0

    def _is_marked(self, pid):
        if not self.mark:
            return False
        variables = _content(f"{self._proc}/{pid}/environ").split(b"\0")
        return all(f"{name}={value}".encode() in variables for name, value in self.mark.items())

    def _is_process(self, pid):
        """Whether a number is a PID; a thread id has a folder in /proc, too, but is not listed."""
        return b"\nTgid:\t%d\n" % pid in _content(f"{self._proc}/{pid}/status")


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


def pressure_s(proc: Path, resource: str) -> float:
    """Seconds in which some process waited for cpu, memory or io. Raises OSError, ValueError."""
    _, *fields = (proc / "pressure" / resource).read_text().splitlines()[0].split()
    return int(dict(field.split("=") for field in fields)["total"]) / 1e6


def disk_bytes(root: Path) -> int:
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


def clock_mhz(root: Path, cpu: int) -> float:
    """The clock of one CPU, as its driver reports it. Raises OSError, ValueError."""
    path = f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"
    return int((root / path).read_text()) / 1000


def throttle_count(root: Path, cpus: Collection[int]) -> int:
    """How often CPUs were throttled for heat. Raises OSError, ValueError."""
    places = (root / f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle" for cpu in sorted(cpus))
    return sum(int((place / "core_throttle_count").read_text()) for place in places)


def has_kernels_stat(root: Path) -> bool:
    """Whether /proc/stat is the kernel's, not one that lxcfs mounts into a container."""
    with contextlib.suppress(OSError):
        lines = (root / "proc/self/mountinfo").read_text().splitlines()
        return all(line.split()[4] != "/proc/stat" for line in lines)
    return True
