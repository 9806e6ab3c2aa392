"""The energies of a run: their quality, and those that counters of a node tell.

There are three energies, with different prefixes: `energy_j` of the GPUs, by NVML (gpus.py);
`host_energy_j` of the processors and their memory; `node_energy_j` of the whole node, by counters
or a meter (dlbench/starting/power.py). The log has for each
    ..._source          the domain that was measured, and what was read
    ..._samples         number of readings
    ..._sampled_share   share of the time that readings cover; 1 for counters, which miss nothing
    ..._resolution_s    mean seconds between two readings
    ..._unknown         why there is no energy
    ..._note            what speaks against it; null: nothing

Counters of a node are read by energy_readers/; of each energy, the first reader that has it counts.
One that cannot be read once is given up, as a sum without it would mean nothing. The local rank 0
alone reads them, so that no node counts twice.
"""

import collections
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.common import plugins

COUNTER = "counter"
INTEGRATED = "integrated power"
NODES_GPUS = "all GPUs of the node"  # of no rank alone: log/energies.py knows them by it
LONGEST_GAP = 2  # intervals between two readings; the time of a longer gap is not covered


def fields(
    prefix: str,
    energy_j: float | None,
    source: str | None,
    unknown: str | None = None,
    samples: int | None = None,
    sampled_share: float | None = None,
    resolution_s: float | None = None,
    note: str | None = None,
) -> dict[str, Any]:
    """The fields of one energy by their names in a log; if it is unknown, only the reason.

    `prefix`: "", "host_" or "node_".
    """
    if energy_j is None:
        source = samples = sampled_share = resolution_s = note = None
    values = {
        "j": None if energy_j is None else round(energy_j, 3),
        "source": source,
        "samples": samples,
        "sampled_share": None if sampled_share is None else round(sampled_share, 4),
        "resolution_s": None if resolution_s is None else round(resolution_s, 6),
        "unknown": unknown if energy_j is None else None,
        "note": note or None,
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


MAX_W = 1000.0  # of one package or its memory; gives the shortest time in which a counter may wrap
SLACK_S = 1.0  # by which two readings may be farther apart than their times
STALE_S = 2.0  # after which a counter that is not renewed is given up
MAX_DIFFERENCE = 0.1  # between a counter and power over time
SAMPLED = PACKAGES, MEMORY = ("package_energy_j", "dram_energy_j")  # fields of samples
ACCELERATORS, NODE, CAPS = "accelerators", "node", "changes of a power cap, no energy"
PREFIXES = {PACKAGES: "host_", MEMORY: "host_", ACCELERATORS: "", NODE: "node_", CAPS: "node_"}
DOMAINS = {"": NODES_GPUS, "host_": "processors and memory", "node_": "node"}


def disagreement(energy_j: float, integral_j: float | None, of: str = "power over time") -> str:
    """How much another energy than the counter's differs from it; "" for at most MAX_DIFFERENCE.

    >>> disagreement(100.0, 80.0)
    'power over time is 20 % less than its counter'
    """
    more = integral_j / energy_j - 1 if energy_j and integral_j is not None else 0.0
    if abs(more) <= MAX_DIFFERENCE:
        return ""
    return f"{of} is {100 * abs(more):.0f} % {'more' if more > 0 else 'less'} than its counter"


class Counter(NamedTuple):
    """A counter of energy: the first word of a file of the kernel.

    The words from the third on, if it has so many, change whenever it is renewed.
    """

    name: str
    kind: str  # one of PREFIXES
    file: Path
    unit_j: float  # joules of 1
    wraps_at: int | None = None  # then it is 0 again
    power: Path | None = None  # a file that begins with the watts of the same


class Counters:
    """All counters of a node, from the first sample on.

    `roots`: folders of readers, by name, instead of their own; `domains`: names of what is counted,
    as in package-0 and package-0/dram.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        interval_s: float,
        roots: Mapping[str, Path] | None = None,
    ) -> None:
        self._clock = clock
        self._counters: dict[str, list[Counter]] = {}  # by prefix of the energy
        self._sources: dict[str, str] = {}
        self._unknown: dict[str, str] = {}
        self._last: dict[Counter, tuple[Any, ...]] = {}  # _read, when it was renewed, and read
        self._spent: collections.Counter[Counter] = collections.Counter()
        self._integrals_j: dict[Counter, float] = {}
        self._coverage = Coverage(LONGEST_GAP * interval_s)
        for name in plugins.names("energy_readers"):
            reader = plugins.load("energy_readers", name)
            self._open(reader, (roots or {}).get(name, reader.ROOT))
        self.domains = [counter.name for each in self._counters.values() for counter in each]

    def sample(self) -> dict[str, float | None]:
        """Joules since the first sample of all packages and of their memory, by field's name."""
        now_s = self._clock()
        for prefix, counters in list(self._counters.items()):
            if reason := next(filter(None, (self._add(one, now_s) for one in counters)), ""):
                self._unknown[prefix] = reason
                del self._counters[prefix]
        self._coverage.add(now_s, bool(self._counters))
        return {kind: self._joules("host_", (kind,)) for kind in SAMPLED}

    def fields(self, prefix: str) -> dict[str, Any]:
        """The fields of an energy; none if no reader has it, and none failed: see `fields`."""
        counters = self._counters.get(prefix, [])
        if not counters and prefix not in self._unknown:
            return {}
        joules = self._joules(prefix, PREFIXES)
        integrals: list[Any] = [self._integrals_j.get(one) for one in counters if one.kind != CAPS]
        notes = [disagreement(joules or 0.0, None if None in integrals else sum(integrals))]
        if any(self._spent[counter] for counter in counters if counter.kind == CAPS):
            notes.append("the power cap was changed")
        return fields(
            prefix,
            joules,
            self._sources.get(prefix),
            self._unknown.get(prefix),
            **self._coverage.quality(counter=True),
            note="; ".join(filter(None, notes)),
        )

    def _joules(self, prefix, kinds):
        counters = [c for c in self._counters.get(prefix, ()) if c.kind in kinds]
        joules = [self._spent[c] * c.unit_j for c in counters]
        return round(math.fsum(joules), 3) if joules else None

    def _add(self, counter, now_s):
        """Add the energy since the last reading. Returns why it is not known, or ""."""
        try:
            count, power_w, stamp = read = _read(counter)
        except (OSError, ValueError, IndexError) as error:
            return f"{counter.name} could not be read: {error}"
        before = self._last.get(counter, (*read, now_s, now_s))
        last, last_w, last_stamp, renewed_s, last_s = before
        renewed_s = renewed_s if stamp == last_stamp else now_s
        self._last[counter] = *read, renewed_s, now_s
        if stamp and counter.kind != CAPS and now_s - renewed_s > STALE_S:
            return f"{counter.name} was not renewed for {now_s - renewed_s:.0f} s"
        took_s, spent = now_s - last_s, count - last
        if counter.wraps_at:
            spent %= counter.wraps_at
            if took_s * MAX_W >= counter.wraps_at * counter.unit_j:
                return (
                    f"{counter.name} was not read for {took_s:.0f} s, in which it may have wrapped "
                    "around more than once: lower sample_every_s"
                )
        spent_j = spent * counter.unit_j
        if spent < 0 or (counter.wraps_at and spent_j > (took_s + SLACK_S) * MAX_W):
            return f"{counter.name} was reset: {spent_j:.6g} J more after {took_s:.1f} s"
        self._spent[counter] += spent
        if counter.power:
            power_j = took_s * (last_w + power_w) / 2
            self._integrals_j[counter] = self._integrals_j.get(counter, 0.0) + power_j
        return ""

    def _open(self, reader, root):
        """Add the counters of a reader for those energies that none before it has."""
        found, reason = [], f"{root} {reader.MISSING}" if reader.MISSING else ""
        try:
            found = list(reader.counters(root))
            for counter in found:
                _read(counter)
        except PermissionError as error:
            found, reason = (
                [],
                (
                    f"{error.filename} may not be read: Linux allows it to root only, unless the "
                    "administrator changes the file's mode"
                ),
            )
        except (OSError, ValueError, IndexError) as error:
            found, reason = [], f"{root} cannot be read: {error}"
        for prefix, domain in DOMAINS.items():
            counters = [counter for counter in found if PREFIXES[counter.kind] == prefix]
            if counters and prefix not in self._counters:
                self._counters[prefix] = counters
                names = ", ".join(counter.name for counter in counters if counter.kind != CAPS)
                self._sources[prefix] = f"{domain}: {reader.SOURCE} {names}"
        if reason and "host_" not in self._counters:
            self._unknown["host_"] = "; ".join(filter(None, (self._unknown.get("host_"), reason)))


def _read(counter):
    """The count, the watts and the stamp of a counter. Raises OSError, ValueError, IndexError."""
    count, *others = counter.file.read_bytes().split()
    power_w = float(counter.power.read_bytes().split()[0]) if counter.power else 0.0
    return int(count), power_w, others[1:]
