"""What a node and the processes of a run have used so far, as the kernel counts it.

- A CPU's busy time is the time that passed less what it was idle: the kernel measures that, while
  its user and system times are samples of its clock ticks. Interrupts are nobody's and left out.
- The time of a process that ended is with the one that waited for it, so that a tree of processes
  loses nothing; where none of the tree waited, what it had used is remembered.
- Processes that begin are found by their numbers, which only grow: all of them are looked at once.

Needs the standard library only; Linux only.
"""

import contextlib
import os
from dataclasses import dataclass

TICK_S = 1 / os.sysconf("SC_CLK_TCK")  # of what /proc says
SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's are
MOST_NEW = 500  # processes; where there are more, listing all is cheaper
LOOKS = 10  # at a process before it is nobody of ours
RESOURCES = ("cpu", "memory", "io")


@dataclass(frozen=True)
class Process:
    """A line of /proc/PID/stat; times in ticks."""

    name: str
    parent: int
    own: int
    children: int  # those it waited for
    started: int

    @property
    def ticks(self):
        return self.own + self.children


def process(proc, pid):
    """Raises: OSError, ValueError: there is none."""
    before, _, after = (proc / str(pid) / "stat").read_bytes().rpartition(b")")
    words = after.split()
    user, system, children_user, children_system = map(int, words[11:15])
    return Process(
        name=os.fsdecode(before.partition(b"(")[2]),
        parent=int(words[1]),
        own=user + system,
        children=children_user + children_system,
        started=int(words[19]),
    )


def processes(proc):
    """{pid: Process} of all that can be seen."""
    found = {}
    for name in filter(str.isdecimal, os.listdir(proc)):
        with contextlib.suppress(OSError, ValueError):  # ended meanwhile
            found[int(name)] = process(proc, name)
    return found


def workflow_of(proc, pid):
    """The outermost Snakemake that a process descends from; the process itself without one."""
    found = pid
    with contextlib.suppress(OSError, ValueError):
        while pid > 1:
            words = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
            found = pid if _is_snakemake(words) else found
            pid = process(proc, pid).parent
    return found


def _is_snakemake(words):
    """
    >>> _is_snakemake(["/x/python3", "-m", "snakemake", "-n"]), _is_snakemake(["vi", "snakemake"])
    (True, False)
    """
    name, *arguments = (word.rpartition("/")[2] for word in words[:3])
    return name == "snakemake" or (name.startswith("python") and "snakemake" in arguments)


class Own:
    """The processes below one, and those that carry a mark in their environment.

    Args:
        proc: the folder /proc.
        pid: of the process at the top, which is one of them.
        mark: variable and its value, as in `leftovers.mark`.
    """

    def __init__(self, proc, pid, mark):
        self._proc = proc
        self.mark = mark
        self._found = {pid: None}  # processes by number, as they were at the last look
        self._bytes = {}  # that they read from disks and wrote, by number
        self._gone, self._most_bytes = 0, (0, 0)
        self._young = {}  # strangers by number: how often they will be looked at again
        self._last = self._last_begun()
        there = processes(proc)
        self._seen = set(there)
        waiting = True
        while waiting:
            waiting = [p for p in there if p not in self._found and there[p].parent in self._found]
            self._found |= dict.fromkeys(waiting)

    def __contains__(self, pid):
        return pid in self._found

    def look(self):
        """(CPU seconds so far, bytes of disks, how many processes used CPU since the last look).

        Bytes are (those read, those written, too), or None where a process does not tell.
        """
        self._adopt()
        now = {}
        for pid, before in self._found.items():
            with contextlib.suppress(OSError, ValueError):
                found = process(self._proc, pid)
                if before is None or found.started == before.started:
                    now[pid] = found
        ended = [self._found[pid] for pid in self._found.keys() - now.keys()]
        waited_for = sum(now[p].children - self._found[p].children for p in now if self._found[p])
        self._gone += max(0, sum(p.ticks for p in ended if p) - waited_for)
        moved = [p for p in now if not self._found[p] or now[p].ticks > self._found[p].ticks]
        self._found = now
        seconds = (self._gone + sum(p.ticks for p in now.values())) * TICK_S
        return seconds, self._disks(moved), len(moved)

    def _disks(self, moved):
        try:
            self._bytes |= {pid: _io(self._proc, pid) for pid in moved}
        except FileNotFoundError:
            pass  # ended meanwhile
        except (OSError, ValueError):
            return None
        self._bytes = {pid: number for pid, number in self._bytes.items() if pid in self._found}
        sums = (sum(numbers) for numbers in zip((0, 0), *self._bytes.values(), strict=True))
        self._most_bytes = tuple(map(max, self._most_bytes, sums))
        return self._most_bytes

    def _adopt(self):
        """Find those that began since the last look; others stay strangers after some looks.

        A process has its mark only once it runs its program, which in a container takes a while.
        """
        young = self._young | dict.fromkeys(self._began(), LOOKS)
        self._young = {}
        for pid in sorted(young.keys() - self._found.keys()):
            with contextlib.suppress(OSError, ValueError):
                if process(self._proc, pid).parent in self._found or self._is_marked(pid):
                    if self._is_no_thread(pid):
                        self._found[pid] = None
                elif young[pid] > 1:
                    self._young[pid] = young[pid] - 1

    def _began(self):
        """Numbers of processes, and of threads, that began since the last look."""
        before, self._last = self._last, self._last_begun()
        if before and before <= self._last <= before + MOST_NEW:
            began = set(range(before + 1, self._last + 1))
        else:
            there = set(map(int, filter(str.isdecimal, os.listdir(self._proc))))
            began, self._seen = there - self._seen, there
        return began

    def _last_begun(self):
        """The number of the process or thread that began last; 0 where that is not known."""
        try:
            return int((self._proc / "loadavg").read_bytes().split()[4])
        except (OSError, ValueError, IndexError):
            return 0

    def _is_marked(self, pid):
        if not self.mark:
            return False
        variables = (self._proc / str(pid) / "environ").read_bytes().split(b"\0")
        return all(f"{name}={value}".encode() in variables for name, value in self.mark.items())

    def _is_no_thread(self, pid):
        """A thread has a folder as well, though none that is listed, with its process's times."""
        return b"\nTgid:\t%d\n" % pid in (self._proc / str(pid) / "status").read_bytes()


def _io(proc, pid):
    lines = (line.split(b": ") for line in (proc / str(pid) / "io").read_bytes().splitlines())
    values = {name: int(value) for name, value in lines}
    read, written = values[b"read_bytes"], values[b"write_bytes"] - values[b"cancelled_write_bytes"]
    return read, read + written


@dataclass(frozen=True)
class Cpus:
    """Of some CPUs together, in seconds: not busy for any process, and taken by a hypervisor."""

    count: int
    idle_s: float
    steal_s: float


def cpus(proc, ours):
    """(Cpus that we may use, all Cpus of the node). Raises: OSError, ValueError."""
    lines = (line.split() for line in (proc / "stat").read_bytes().splitlines())
    # user nice system idle iowait irq softirq steal
    found = {
        int(name[3:]): list(map(int, times[:8]))
        for name, *times in lines
        if name.startswith(b"cpu") and name != b"cpu"
    }
    chosen = [times for number, times in found.items() if number in ours]
    if not chosen:
        raise ValueError("/proc/stat has none of the CPUs that this process may use")
    return _sum(chosen), _sum(found.values())


def _sum(times):
    return Cpus(
        count=len(times),
        idle_s=sum(sum(t[3:7]) for t in times) * TICK_S,
        steal_s=sum(t[7] for t in times if len(t) > 7) * TICK_S,
    )


def pressure_s(proc, resource):
    """Seconds in which some process waited for cpu, memory or io. Raises: OSError, ValueError."""
    some = (proc / "pressure" / resource).read_text().splitlines()[0].split()
    return int(dict(word.split("=") for word in some[1:])["total"]) / 1e6


def disk_bytes(root):
    """Bytes that all disks read and wrote. Raises: OSError, ValueError, IndexError."""
    lines = map(str.split, (root / "proc/diskstats").read_text().splitlines())
    return SECTOR_BYTES * sum(
        int(line[5]) + int(line[9]) for line in lines if _is_disk(root, line[2])
    )


def _is_disk(root, name):
    """A whole one, and none that stands for others or for memory."""
    place = root / "sys/block" / name.replace("/", "!")
    if name.startswith(("loop", "ram", "zram")) or not place.is_dir():
        return False
    return not any((place / "slaves").glob("*"))


def clock_mhz(root, cpu):
    """Of one CPU, as its driver says. Raises: OSError, ValueError."""
    path = f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"
    return int((root / path).read_text()) / 1000


def throttle_count(root, ours):
    """How often some CPUs were slowed down for heat. Raises: OSError, ValueError."""
    places = (root / f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle" for cpu in sorted(ours))
    return sum(int((place / "core_throttle_count").read_text()) for place in places)


def own_stat(root):
    """Whether /proc/stat is the kernel's, and not one that a container is given (lxcfs)."""
    with contextlib.suppress(OSError):
        lines = (root / "proc/self/mountinfo").read_text().splitlines()
        return all(line.split()[4] != "/proc/stat" for line in lines)
    return True
