"""OSU Micro-Benchmarks: `# OSU MPI Allreduce Latency Test v7.5`, then a size and a number a line.

- Collectives: the mean time of one over iterations and then over all processes, in us. An
  all-reduce has the bus bandwidth bytes / time x 2 (n - 1) / n; of other collectives the time
  alone is kept.
- Bandwidth Test: MB/s of 10^6 bytes from one process to another, with a window of messages under
  way; Bi-Directional: the sum of both directions. Latency Test: half of a round trip, in us.
- The log does not say how many processes there are, nor where: nodes and devices_per_node
  (processes on each) are --fields. Processes that hold no GPU count as devices.
- Sizes whose Validation says Fail are left out.
- Sizes that are repeated, as in a log of several tables of a kind, are rounds only within a
  table.

Source: OSU Micro-Benchmarks 5.6 to 7.5, as public pages show their output.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dlbench.imports.baseline_importers import Measurement
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_lines import MAX_TIME_S, count, real

LINE_MARKS = (b"# OSU ",)
TITLE = re.compile(r"#\s*OSU [A-Z]+(?:-\w+)? (.+?)(?: Test)? v(\d[\w.]*)\s*$")
ROW = re.compile(r"^(?:\[\d+,\d+\]<stdout>:)?\s*(\d+)\s+(\d[\d.]*)(?:\s|$)")
BANDWIDTHS = {
    "Bandwidth": "send_bandwidth",
    "Bi-Directional Bandwidth": "send_bandwidth_both_ways",
}
TIMES = {"Latency": "send", "Allreduce Latency": "all_reduce"}


def recognise(log: LogFile) -> bool:
    return bool(re.search(TITLE.pattern, log.head_text, re.MULTILINE))


def read(log: LogFile, fields: Mapping[str, Any]) -> Iterator[Measurement]:
    measurement, number = None, 0
    for number, line in log.lines():
        if number == log.unfinished:
            break
        if match := TITLE.search(line):
            if measurement and (measurement.seconds or measurement.gb_per_s):
                yield measurement
            measurement = _new_measurement(match[1], match[2])
        elif measurement and (match := ROW.match(line)):
            size, value = count(match[1], high=2**62), real(match[2], 1e-9, MAX_TIME_S)
            if size is None or value is None:
                continue
            if line.split()[-1] == "Fail":
                measurement.meaning += f"; {size} bytes left out: wrong values"
            elif measurement.measure in BANDWIDTHS.values():
                measurement.gb_per_s.setdefault(size, []).append(value / 1000)
            else:
                measurement.seconds.setdefault(size, []).append(value / 1e6)
    if not measurement or not (measurement.seconds or measurement.gb_per_s):
        raise log.error(number or 1, "no size with a number below the title")
    yield measurement


def _new_measurement(title, version):
    measure = BANDWIDTHS.get(title) or TIMES.get(title)
    if not measure:
        name = title.removesuffix(" Latency").lower()
        measure = re.sub(r"\W+", "_", name).strip("_") or "unknown"
    return Measurement(measure, f"OSU Micro-Benchmarks {version}, {title}: means over iterations")
