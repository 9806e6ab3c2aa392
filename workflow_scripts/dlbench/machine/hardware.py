"""Facts of the node that a process runs on, as the kernel states them in /proc and /sys.

- Everything is read from files; no program is called, because images may have none.
- `constant_facts` are equal on all nodes of one kind, `present_facts` are of this node at this
  moment.
- A fact that cannot be read is None, and `unknown` has the reason; nothing is guessed.
"""

import math
import os
import platform
import re
import socket
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

HOST = "DLBENCH_HOST"  # variable with the machine's name, in a network of start_unreachable
Value = TypeVar("Value")
CPU, NODES = "sys/devices/system/cpu", "sys/devices/system/node"
# Instruction sets of x86 and Arm that decide how fast matrices are multiplied.
FEATURES = re.compile(
    r"ssse3|sse4\w*|avx\w*|fma|f16c|amx\w*|bmi\d|popcnt|asimd\w*|sve\w*|sme(?!p)\w*|bf16|i8mm|fphp"
)
# Of the x86-64 psABI (1.0, section 3.1.1); each level needs those before it.
LEVELS = {
    2: {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"},
    3: {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
    4: {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
ARM = ("CPU implementer", "CPU part", "CPU variant", "CPU revision")  # Arm has no model name


def host() -> str:
    """The name of this machine, also inside a network of dlbench.starting.start_unreachable."""
    return os.environ.get(HOST) or socket.gethostname()


def short_host(name: str) -> str:
    """A machine's name without its domain, in which schedulers and the machine may differ.

    >>> short_host("n1.cluster.example"), short_host("n1"), short_host("10.0.0.1")
    ('n1', 'n1', '10.0.0.1')
    """
    first = name.partition(".")[0]
    return name if first.isdecimal() else first


class Files:
    """The files below a root. `unknown` has by its name why a fact is None."""

    def __init__(self, root: str | Path = "/") -> None:
        self.root = Path(root)
        self.unknown: dict[str, str] = {}

    def text(self, path: str) -> str:
        """The stripped text of a file. Raises OSError, UnicodeError."""
        return (self.root / path).read_text(encoding="utf-8").strip()

    def paths(self, pattern: str) -> list[str]:
        """Relative paths that match a pattern, sorted by the numbers in them."""
        paths = (str(path.relative_to(self.root)) for path in self.root.glob(pattern))
        return sorted(paths, key=_natural)

    def fact(self, name: str, read: Callable[[], Value]) -> Value | None:
        """The fact that `read()` returns; None, with the reason in `unknown`, if it raises.

        So no benchmark fails because its description is incomplete.
        """
        try:
            return read()
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            self.unknown[name] = f"{where}{error.strerror}"
        except Exception as error:
            self.unknown[name] = f"not understood: {error!r}"
        return None

    def read(self, name: str, path: str, kind: Callable[[str], Any] = str) -> Any:
        """The text of a file as a value of a kind, as `fact` does."""
        return self.fact(name, lambda: kind(self.text(path)))


def constant_facts(files: Files) -> dict[str, Any]:
    """Facts of the kind of node: processor, memory, network.

    The memory size of a virtual machine is not among them: its host may change it while the machine
    runs. `present_facts` have the present size.
    """
    return {
        "system": _system(files),
        **speed_facts(files),
        "network": _network(files),
        "infiniband": _infiniband(files),
    }


def speed_facts(files: Files) -> dict[str, Any]:
    """Those of `constant_facts` that decide how fast the node computes and copies in memory.

    The memory size is one of them, because larger memory may have more channels.
    """
    cpu, memory = _cpu(files), _memory(files)
    if cpu["virtual"]:
        files.unknown["memory"] = "a virtual machine's host may change it: see memory_bytes"
        for holder in (memory, *(cpu["numa"] or ())):
            holder["gib"] = None
    return {"cpu": cpu, "memory": memory}


def present_facts(files: Files) -> dict[str, Any]:
    """Facts of this node and this moment."""
    return {
        "host": host(),
        "memory_bytes": files.fact("memory_bytes", lambda: _memory_bytes(files, "MemTotal")),
        "memory_available_bytes": files.fact(
            "memory_available_bytes", lambda: _memory_bytes(files, "MemAvailable")
        ),
        # From one file: those of cpufreq take up to 20 ms for each CPU.
        "cpu_mhz": files.fact("cpu_mhz", lambda: _frequencies(files.text("proc/cpuinfo"))),
        "load_average": os.getloadavg(),
    }


def _system(files):
    names = ("sys_vendor", "product_name")
    return {name: files.read(f"system.{name}", f"sys/class/dmi/id/{name}") for name in names}


def _cpu(files):
    text = files.read("cpu", "proc/cpuinfo") or ""
    first = _fields(text.split("\n\n")[0])
    flags = set(first.get("flags", first.get("Features", "")).split())
    model = first.get("model name")
    if model is None and ARM[0] in first:
        model = ", ".join(f"{key} {first[key]}" for key in ARM if key in first)
    return {
        "model": model,
        "vendor": first.get("vendor_id"),
        "family": first.get("cpu family"),
        "model_number": first.get("model"),
        "stepping": first.get("stepping"),
        "microcode": first.get("microcode"),
        "architecture": platform.machine(),
        "x86_64_level": level(flags) if platform.machine() == "x86_64" else None,
        "features": sorted(filter(FEATURES.fullmatch, flags)),
        "virtual": "hypervisor" in flags,
        **_topology(files),
        "caches": files.fact("cpu.caches", lambda: _caches(files)),
        "numa": files.fact("cpu.numa", lambda: _numa(files)),
        **_frequency_settings(files),
    }


def level(flags: Iterable[str]) -> int:
    """The level of x86-64 that a processor with these flags reaches.

    >>> level({"fma"}), level(LEVELS[2]), level(LEVELS[2] | LEVELS[3] | {"avx512f"})
    (1, 2, 3)
    """
    reached = 1
    for number, needed in LEVELS.items():
        if not needed.issubset(flags):
            break
        reached = number
    return reached


def _topology(files):
    """Sockets, cores and threads of the CPUs online; a core is identified by its threads."""

    def count():
        online = expand(files.text(f"{CPU}/online"))
        places = [f"{CPU}/cpu{number}/topology" for number in online]
        return {
            "sockets": len({files.text(f"{place}/physical_package_id") for place in places}),
            "cores": len({files.text(f"{place}/thread_siblings_list") for place in places}),
            "threads": len(online),
        }

    counts = files.fact("cpu.topology", count)
    if counts is None:
        return {"sockets": None, "cores": None, "threads": os.cpu_count(), "smt": None}
    return counts | {"smt": counts["threads"] > counts["cores"]}


def _caches(files):
    """The caches of CPU 0: level, kind, size, and how many CPUs share each."""
    return [
        {
            "level": int(files.text(f"{place}/level")),
            "type": files.text(f"{place}/type"),
            "bytes": _size(files.text(f"{place}/size")),
            "shared_by": len(expand(files.text(f"{place}/shared_cpu_list"))),
        }
        for place in files.paths(f"{CPU}/cpu0/cache/index*")
    ]


def _numa(files):
    """The NUMA nodes: CPUs, memory, distances."""
    files.text(f"{NODES}/online")  # an OSError here is the reason that nothing is known
    return [
        {
            "cpus": files.text(f"{place}/cpulist"),
            "gib": installed_gib(_kib(files.text(f"{place}/meminfo"), "MemTotal") * 1024),
            "distances": files.text(f"{place}/distance"),
        }
        for place in files.paths(f"{NODES}/node*")
    ]


def _frequency_settings(files):
    """The settings of the clocks: the distinct values of all policies, each of some CPUs."""
    policies = files.paths(f"{CPU}/cpufreq/policy*")
    if not policies:
        files.unknown["cpu.frequencies"] = f"/{CPU}/cpufreq: no policies, as in virtual machines"
        return {"governors": None, "frequency_driver": None, "frequency_mhz": None, "boost": None}

    def distinct(name):
        return sorted({files.text(f"{place}/{name}") for place in policies}, key=_natural)

    def limits():
        low, high = (map(int, distinct(f"scaling_{end}_freq")) for end in ("min", "max"))
        return [min(low) / 1000, max(high) / 1000]

    return {
        "governors": files.fact("cpu.governors", lambda: distinct("scaling_governor")),
        "frequency_driver": files.fact("cpu.frequency_driver", lambda: distinct("scaling_driver")),
        "frequency_mhz": files.fact("cpu.frequency_mhz", limits),
        "boost": files.fact("cpu.boost", lambda: _boost(files)),
    }


def _boost(files):
    try:
        return files.text(f"{CPU}/intel_pstate/no_turbo") == "0"
    except FileNotFoundError:
        return files.text(f"{CPU}/cpufreq/boost") == "1"


def _memory(files):
    return {
        "gib": files.fact("memory", lambda: installed_gib(_memory_bytes(files, "MemTotal"))),
        "swap_gib": files.fact("swap", lambda: round(_memory_bytes(files, "SwapTotal") / 2**30)),
        "transparent_huge_pages": files.fact(
            "memory.transparent_huge_pages", lambda: _huge_pages(files)
        ),
    }


def _huge_pages(files):
    """The mode in brackets, as in `always [madvise] never`, or the whole text without any."""
    text = files.text("sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", text)
    return chosen[1] if chosen else text


def _network(files):
    """Network interfaces that are hardware and up; speed in Mbit/s."""
    interfaces = []
    for place in files.paths("sys/class/net/*"):
        name = place.rsplit("/", 1)[1]
        if not (files.root / place / "device").exists():
            continue  # bridges, tunnels, the loopback
        if files.fact(f"network.{name}", lambda p=place: files.text(f"{p}/operstate")) == "down":
            continue
        speed = files.read(f"network.{name}.speed", f"{place}/speed", int)
        if speed is not None and speed <= 0:
            files.unknown[f"network.{name}.speed"] = (
                f"/{place}/speed: {speed}: the driver says none"
            )
            speed = None
        driver = files.root / place / "device" / "driver"
        interfaces.append(
            {
                "name": name,
                "speed_mbit_s": speed,
                "mtu": files.read(f"network.{name}.mtu", f"{place}/mtu", int),
                "driver": driver.resolve().name if driver.exists() else None,
            }
        )
    return interfaces


def _infiniband(files):
    """Ports of InfiniBand, RoCE and Omni-Path devices."""
    return [
        {
            "device": place.split("/")[3],
            "port": int(place.rsplit("/", 1)[1]),
            "type": files.read(f"infiniband.{place}.type", f"{place}/../../hca_type"),
            "firmware": files.read(f"infiniband.{place}.firmware", f"{place}/../../fw_ver"),
            "link_layer": files.read(f"infiniband.{place}.link_layer", f"{place}/link_layer"),
            "state": files.read(f"infiniband.{place}.state", f"{place}/state"),
            "rate": files.read(f"infiniband.{place}.rate", f"{place}/rate"),
        }
        for place in files.paths("sys/class/infiniband/*/ports/*")
    ]


def expand(text: str) -> list[int]:
    """The numbers in one of the kernel's lists.

    >>> expand("0-2,8")
    [0, 1, 2, 8]
    """
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _frequencies(text):
    clocks = [float(mhz) for mhz in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", text, re.M)]
    if not clocks:
        raise ValueError("no line cpu MHz in /proc/cpuinfo")
    return {"min": min(clocks), "median": statistics.median(clocks), "max": max(clocks)}


def _fields(text):
    lines = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def installed_gib(total_bytes: int) -> float:
    """The installed memory in GiB, from the total that the kernel offers to processes.

    The kernel keeps 1 to 5 % for itself, some pages more or less at each start. So the total is
    rounded up to a multiple of an eighth of the largest power of two that is not above it.

    >>> [installed_gib(gib * 2**30) for gib in (62.499, 62.501, 15.4, 377.6, 23.54, 3.66, 0)]
    [64, 64, 16, 384, 24, 3.75, 0]
    """
    if not total_bytes:
        return 0  # a NUMA node without memory
    step = 2.0 ** (math.floor(math.log2(total_bytes)) - 3)
    gib = math.ceil(total_bytes / step) * step / 2**30
    return int(gib) if gib.is_integer() else gib


def _memory_bytes(files, name):
    return _kib(files.text("proc/meminfo"), name) * 1024


def _kib(text, name):
    match = re.search(rf"\b{name}:\s+(\d+) kB", text)
    if not match:
        raise ValueError(f"no {name}")
    return int(match[1])


def _size(text):
    """Bytes of a size as the kernel writes it.

    >>> _size("32K"), _size("1M")
    (32768, 1048576)
    """
    return int(text[:-1]) * {"K": 2**10, "M": 2**20, "G": 2**30}[text[-1]]


def _natural(text):
    """A key that sorts numbers in a text by their value; text and numbers alternate in it."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", text)]
