"""The energies of a run: their quality, and that of processors and memory by RAPL's counters.

There are three energies, with different prefixes: `energy_j` of the GPUs, by NVML (gpus.py);
`host_energy_j` of the processors and their memory, by RAPL; `node_energy_j` of the whole node, by a
meter (dlbench/starting/power.py). The log has for each
    ..._source          what was read
    ..._samples         number of readings
    ..._sampled_share   share of the time that readings cover; 1 for counters, which miss nothing
    ..._resolution_s    mean seconds between two readings
    ..._unknown         why there is no energy

RAPL:
- Intel's and AMD's processors count the energy of each package (a socket, or a part of one), and
  some servers that of the memory at it (dram). Linux shows them in /sys/class/powercap, AMD's too
  under Intel's name: intel-rapl:0 is a package, intel-rapl:0:1 a part of it.
- The energy is the sum over all packages and their memory, which packages do not include. Left out
  are parts of a package (core, uncore), the whole of a laptop (psys), and intel-rapl-mmio, which
  shows the same packages in another way.
- A counter wraps around to 0 after max_energy_range_uj: minutes at full power. One that falls by
  more than that allows was reset.
- Since 2020 Linux lets only root read the counters (CVE-2020-8694), unless the administrator
  allows it.

Source: Linux, Documentation/power/powercap/powercap.rst.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

COUNTER = "counter"
INTEGRATED = "integrated power"
LONGEST_GAP = 2  # intervals between two readings; the time of a longer gap is not covered


def fields(
    prefix: str,
    energy_j: float | None,
    source: str | None,
    unknown: str | None = None,
    samples: int | None = None,
    sampled_share: float | None = None,
    resolution_s: float | None = None,
) -> dict[str, Any]:
    """The fields of one energy by their names in a log; if it is unknown, only the reason.

    `prefix`: "", "host_" or "node_".
    """
    if energy_j is None:
        source = samples = sampled_share = resolution_s = None
    values = {
        "j": None if energy_j is None else round(energy_j, 3),
        "source": source,
        "samples": samples,
        "sampled_share": None if sampled_share is None else round(sampled_share, 4),
        "resolution_s": None if resolution_s is None else round(resolution_s, 6),
        "unknown": unknown if energy_j is None else None,
    }
    return {f"{prefix}energy_{name}": value for name, value in values.items()}


class Coverage:
    """Counts readings of one quantity and the time that they cover.

    `longest_gap_s`: two readings farther apart do not cover the time between them.
    """

    def __init__(self, longest_gap_s: float) -> None:
        self._longest_gap_s = longest_gap_s
        self._samples, self._covered_s = 0, 0.0
        self._first_s: float | None = None
        self._last_s = 0.0
        self._read_s: float | None = None

    def add(self, now_s: float, known: bool) -> None:
        """Count an attempt to read the quantity, and whether it succeeded."""
        if self._first_s is None:
            self._first_s = now_s
        self._last_s = now_s
        if not known:
            return
        self._samples += 1
        if self._read_s is not None and now_s - self._read_s <= self._longest_gap_s:
            self._covered_s += now_s - self._read_s
        self._read_s = now_s

    def quality(self, counter: bool) -> dict[str, Any]:
        """`samples`, `sampled_share` and `resolution_s` of `fields`.

        `counter`: whether a counter was read, which misses nothing between two readings.
        """
        span_s = self._last_s - (self._first_s or 0.0)
        share = self._covered_s / span_s if span_s > 0 else None
        return {
            "samples": self._samples,
            "sampled_share": 1.0 if counter else share,
            "resolution_s": span_s / (self._samples - 1) if self._samples > 1 else None,
        }


ROOT = Path("/sys/class/powercap")
PACKAGE = re.compile(r"intel-rapl:\d+")
MAX_W = 1000.0  # of one package or its memory; gives the shortest time in which a counter may wrap
SLACK_S = 1.0  # by which two readings may be farther apart than their times
KINDS = PACKAGES, MEMORY = ("package_energy_j", "dram_energy_j")


class Rapl:
    """All counters of a node, from the first sample on; `root` is the folder of powercap.

    `domains`: names of what is counted, as in package-0 and package-0/dram; `unknown`: why the
    energy is not known, or None.
    """

    def __init__(self, root: Path, clock: Callable[[], float], interval_s: float) -> None:
        self._clock = clock
        self._counters: list[_Counter] = []
        self._coverage = Coverage(LONGEST_GAP * interval_s)
        self.unknown: str | None = None
        try:
            self._counters += _counters(root)
            if not self._counters:
                self.unknown = (
                    f"{root} has no packages of RAPL: this kernel or processor does not count "
                    "energy, or a container or virtual machine hides it"
                )
        except PermissionError as error:
            self._give_up(
                f"{error.filename} may not be read: Linux allows it to root only, unless the "
                "administrator changes the file's mode"
            )
        except (OSError, ValueError) as error:
            self._give_up(f"{root} cannot be read: {error}")
        self.domains = [counter.name for counter in self._counters]

    def sample(self) -> dict[str, float | None]:
        """Joules since the first sample of all packages and of their memory, by field's name."""
        now_s = self._clock()
        for counter in self._counters:
            if reason := counter.read(now_s):
                self._give_up(reason)
                break
        self._coverage.add(now_s, bool(self._counters))
        return {kind: self._joules(kind) for kind in KINDS}

    def fields(self) -> dict[str, Any]:
        """`host_energy_j` and what goes with it: see energy.py."""
        joules = [j for kind in KINDS if (j := self._joules(kind)) is not None]
        return fields(
            "host_",
            sum(joules) if joules else None,
            f"RAPL: {', '.join(self.domains)}",
            self.unknown,
            **self._coverage.quality(counter=True),
        )

    def close(self) -> None:
        for counter in self._counters:
            counter.close()
        self._counters = []

    def _joules(self, kind):
        joules = [counter.joules for counter in self._counters if counter.kind == kind]
        return round(sum(joules), 3) if joules else None

    def _give_up(self, reason):
        """Stop counting for good: without one counter the sum means nothing, even later."""
        self.unknown = reason
        self.close()


def _counters(root: Path) -> "Iterator[_Counter]":
    """Yield the counters of packages and of their memory.

    Raises OSError, ValueError: a counter exists and cannot be read.
    """
    packages = (path for path in root.glob("intel-rapl:*") if PACKAGE.fullmatch(path.name))
    for package in sorted(packages):
        name = _name(package)
        if not name.startswith("package"):
            continue
        yield _Counter(name, PACKAGES, package)
        for part in sorted(root.glob(f"{package.name}:*")):
            if _name(part) == "dram":
                yield _Counter(f"{name}/dram", MEMORY, part)


def _name(folder):
    """The name of what a folder of powercap counts; "" if it is hidden, as Docker does."""
    try:
        return (folder / "name").read_text().strip()
    except FileNotFoundError:
        return ""


class _Counter:
    """One counter of microjoules; its file stays open.

    Raises OSError, ValueError: it cannot be read.
    """

    def __init__(self, name, kind, folder):
        self.name, self.kind = name, kind
        self._range_uj = int((folder / "max_energy_range_uj").read_text())
        self._file = os.open(folder / "energy_uj", os.O_RDONLY | os.O_CLOEXEC)
        self._sum_uj = 0
        self._last = None

    @property
    def joules(self):
        return self._sum_uj / 1e6

    def read(self, now_s):
        """Add the energy since the last reading. Returns why it is not known, or ""."""
        try:
            count_uj = int(os.pread(self._file, 64, 0))
        except (OSError, ValueError) as error:
            return f"{self.name} could not be read: {error}"
        if self._last is not None:
            last_uj, last_s = self._last
            took_s, spent_uj = now_s - last_s, (count_uj - last_uj) % self._range_uj
            if took_s * MAX_W * 1e6 >= self._range_uj:
                return (
                    f"{self.name} was not read for {took_s:.0f} s, in which it may have wrapped "
                    "around more than once: lower sample_every_s"
                )
            if spent_uj > (took_s + SLACK_S) * MAX_W * 1e6:
                return f"{self.name} was reset: {spent_uj / 1e6:.0f} J more after {took_s:.1f} s"
            self._sum_uj += spent_uj
        self._last = count_uj, now_s
        return ""

    def close(self):
        os.close(self._file)
