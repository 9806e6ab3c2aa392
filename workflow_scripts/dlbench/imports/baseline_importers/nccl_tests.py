"""nccl-tests (all_reduce_perf and others): a table of sizes, times and bandwidths.

- `time` is the mean of one call over the iterations (20 unless told otherwise), in us, after
  warm-up calls, and over all ranks unless -a says otherwise; the log does not repeat -a. Of the
  two tables out-of-place is taken. A size that is measured several times (-N) has as many rounds;
  else one, whose median, least and most are the same number.
- `busbw` is bytes / time x 2 (n - 1) / n in an all-reduce of n ranks, as here; of the other
  collectives the printed one is taken, whose factor differs.
- Ranks and nodes follow from the lines `Rank 0 ... on HOST device ...`, else from --fields.
- Today's version names its collective. Older logs do not: an all-reduce is known by its factor,
  any other is refused.
- Sizes with wrong values are left out of the table, and refused if there is no other.

Source: NVIDIA/nccl-tests, src/common.cu, July 2026; tables of public pages (dstack's on 2 ranks).
"""

import re
from collections.abc import Iterator

from dlbench.imports.baseline_importers import Measurement
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import MOST_TIME_S, count, real

LINE_MARKS = (b" busbw",)
NAMED = re.compile(r"# Collective test starting: (?:\S*/)?(\w+?)(?:_perf)?\s*$")
BEGIN = re.compile(r"# nThread \d+ nGpus \d+ ")
RANK = re.compile(r"#\s+Rank\s+\d+\s.*\bon\s+(\S+) device\s+\d+ \[[\w:]+\] (.+?)\s*$")
ROW = re.compile(
    r"(?:^|>:|: )\s*(\d+)\s+\d+\s+(\w+)\s+(\w+)\s+(-?\d+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)"
)
HEADER = re.compile(r"#\s+size\s+count\s+type\s+redop\s+root\s+time\s+algbw\s+busbw")
MOST_DOUBT = 0.02  # of the factor by which an all-reduce is known


def recognise(log: LogFile) -> bool:
    return bool(HEADER.search(log.head_text))


def read(log: LogFile) -> Iterator[Measurement]:
    table, number = _Table(), 0
    for number, line in log.lines():
        if number == log.unfinished:
            break
        if (named := NAMED.search(line)) or BEGIN.search(line):
            if table.rows:
                yield table.measurement(log, number - 1)
                table = _Table()
            table.name = named[1] if named else table.name
        elif match := RANK.search(line):
            table.hosts.append(match[1])
            table.models.add(match[2])
        elif match := ROW.search(line):
            table.add(match)
    yield table.measurement(log, number)


class _Table:
    """The lines of one test."""

    def __init__(self):
        self.name, self.hosts, self.models = None, [], set()
        self.rows, self.types, self.wrong = [], set(), 0

    def add(self, match):
        size, seconds = count(match[1], high=2**62), real(match[5], 1e-6, MOST_TIME_S)
        rates = [real(match[place], 0) for place in (6, 7)]
        if size is None or seconds is None or None in rates:
            return
        if match[8] not in ("0", "N/A"):
            self.wrong += 1
            return
        self.types.add((match[2], match[3]))
        self.rows.append((size, seconds / 1e6, *rates))

    def measurement(self, log, last_line):
        if not self.rows:
            wrong = f": {self.wrong} have wrong values" if self.wrong else ""
            raise log.error(last_line or 1, f"no size with a time in the table{wrong}")
        name = self.name or self._known_by_its_factor(log, last_line)
        kinds = ", ".join(sorted({f"{type_} {redop}" for type_, redop in self.types}))
        found = Measurement(name, f"nccl-tests, out-of-place, {kinds}: means over iterations")
        if self.wrong:
            found.meaning += f"; {self.wrong} sizes with wrong values left out"
        for size, seconds, _, bus in self.rows:
            found.seconds.setdefault(size, []).append(seconds)
            if name != "all_reduce":
                found.gb_per_s.setdefault(size, []).append(bus)
        nodes = len(set(self.hosts))
        if nodes and len(self.hosts) % nodes == 0:
            found.conditions = {"nodes": nodes, "devices_per_node": len(self.hosts) // nodes}
            found.conditions["device_model"] = " + ".join(sorted(self.models))
        return found

    def _known_by_its_factor(self, log, last_line):
        _, _, algorithm, bus = max(self.rows)
        ranks = len(self.hosts)
        expected = 2 * (ranks - 1) / ranks if ranks else 0
        sums = {redop for _, redop in self.types} == {"sum"}
        if sums and expected and abs(bus / (algorithm or 1) - expected) <= MOST_DOUBT * expected:
            return "all_reduce"
        raise log.error(
            last_line,
            "the log does not name its collective ('# Collective test starting: ...', which newer "
            "nccl-tests print), and its ranks and bandwidths are not those of an all-reduce",
        )
