"""The quality of an energy: its source, how often it was read, and the share of the time covered.

There are three energies, with different prefixes: `energy_j` of the GPUs, by NVML; `host_energy_j`
of the processors and their memory, by RAPL (rapl.py); `node_energy_j` of the whole node, by a meter
(dlbench/starting/power_meter.py). The log has for each
    ..._source          what was read
    ..._samples         number of readings
    ..._sampled_share   share of the time that readings cover; 1 for counters, which miss nothing
    ..._resolution_s    mean seconds between two readings
    ..._unknown         why there is no energy
"""

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

    Args:
        prefix: "", "host_" or "node_".
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

    Args:
        longest_gap_s: two readings farther apart do not cover the time between them.
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

        Args:
            counter: whether a counter was read, which misses nothing between two readings.
        """
        span_s = self._last_s - (self._first_s or 0.0)
        share = self._covered_s / span_s if span_s > 0 else None
        return {
            "samples": self._samples,
            "sampled_share": 1.0 if counter else share,
            "resolution_s": span_s / (self._samples - 1) if self._samples > 1 else None,
        }
