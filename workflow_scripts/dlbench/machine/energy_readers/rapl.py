"""RAPL: the energy of processors and of the memory at them, as Intel and AMD count it.

- Each package (a socket, or a part of one) is counted, and on some servers the memory at it (dram).
  Linux shows them in /sys/class/powercap, AMD's too under Intel's name: intel-rapl:0 is a package,
  intel-rapl:0:1 a part of it.
- Packages do not include their memory. Left out are parts of a package (core, uncore), the whole of
  a laptop (psys), and intel-rapl-mmio, which shows the same packages in another way.
- A counter wraps around to 0 after max_energy_range_uj: minutes at full power.
- Since 2020 Linux lets only root read the counters (CVE-2020-8694), unless the administrator
  allows it.

Source: Linux, Documentation/power/powercap/powercap.rst.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from dlbench.machine.energy import MEMORY, PACKAGES, Counter

ROOT = Path("/sys/class/powercap")
SOURCE = "RAPL"
MISSING = (
    "has no packages of RAPL: this kernel or processor does not count energy, or a container or "
    "virtual machine hides it"
)
PACKAGE = re.compile(r"intel-rapl:\d+")


def counters(root: Path) -> Iterator[Counter]:
    """Yield the counters of packages and of their memory."""
    packages = (path for path in root.glob("intel-rapl:*") if PACKAGE.fullmatch(path.name))
    for package in sorted(packages):
        name = _name(package)
        if not name.startswith("package"):
            continue
        yield _counter(name, PACKAGES, package)
        for part in sorted(root.glob(f"{package.name}:*")):
            if _name(part) == "dram":
                yield _counter(f"{name}/dram", MEMORY, part)


def _counter(name, kind, folder):
    range_uj = int((folder / "max_energy_range_uj").read_text())
    return Counter(name, kind, folder / "energy_uj", 1e-6, range_uj)


def _name(folder):
    """The name of what a folder of powercap counts; "" if it is hidden, as Docker does."""
    try:
        return (folder / "name").read_text().strip()
    except FileNotFoundError:
        return ""
