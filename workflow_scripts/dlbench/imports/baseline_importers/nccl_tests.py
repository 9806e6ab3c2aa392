"""nccl-tests (all_reduce_perf and others): a table of sizes, times and bandwidths.

- `time` is the mean of one call over the iterations (20 by default), in us, after
  warm-up calls, and over all ranks unless -a says otherwise; the log does not repeat -a. Of the
  two tables out-of-place is taken. A size that is measured several times (-N) has as many rounds;
  else one, whose median, least and most are the same number.
- `busbw` is bytes / time x 2 (n - 1) / n in an all-reduce of n ranks, as here; of the other
  collectives the printed one is taken, whose factor differs.
- Ranks and nodes follow from the lines `Rank 0 ... on HOST device ...` if all are there, else from
  --fields (nodes, devices_per_node).
- Today's version names its collective. Older logs do not: --fields may name it (measure), and an
  all-reduce is known by its factor. Where the factor of an all-reduce is not that of its ranks,
  the log is refused: lines of ranks are missing, or the fields are wrong.
- Sizes with wrong values are left out of the table, and refused if there is no other. Versions
  until 2022 print the largest relative error instead of their number; they count an error above
  1e-2 (half), 1e-5 (float), 1e-12 (double) or 0 as wrong, and so do we.
- What launchers put before lines (`[1,0]<stdout>:`, `0: `) tells processes apart; the same table of
  several counts once. If two programs print without it, the log is refused.

Source: NVIDIA/nccl-tests, src/common.cu, of 2018 to July 2026; tables of public pages (dstack's on
2 ranks).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dlbench.imports.baseline_importers import Measurement
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_lines import MAX_TIME_S, count, real

LINE_MARKS = (b" busbw",)
NAMED = re.compile(r"# Collective test (?:starting|concluded): (?:\S*/)?(\w+?)(?:_perf\w*)?\s*$")
STARTING = re.compile(r"# Collective test starting: ")
BEGIN = re.compile(r"# nThread \d+ nGpus \d+ ")
RANK = re.compile(r"#\s+Rank\s+(\d+)\s(.*\bon\s+(\S+) device\s+\d+ \[[\w:.]+\] (.+?))\s*$")
HEADER = re.compile(r"#\s+(size\s+count\s+type\s.*?\btime\s+algbw\s+busbw\s+(?:#wrong|error)\b)")
LABEL = re.compile(r"^(?:\[\d+,(\d+)\]<std(?:out|err)>:|\[?(\d{1,6})\]?:)")
CONTENT = re.compile(r"^(?:.*?(?:>:|: ))??\s*(#.*|\d+\s+\d+\s.*)$")
ALL_REDUCE = "all_reduce"
MAX_DOUBT = 0.002  # of the factor by which an all-reduce is known, beyond printed digits
MIN_EXACT = 0.01  # digits that leave more open prove nothing
HALF_DIGIT = 0.005  # of bandwidths, GB/s
MAX_ERROR = {"half": 1e-2, "float16": 1e-2, "bfloat16": 1e-2, "float": 1e-5, "double": 1e-12}


def recognise(log: LogFile) -> bool:
    return bool(HEADER.search(log.head_text))


def read(log: LogFile, fields: Mapping[str, Any]) -> Iterator[Measurement]:
    tables: dict[str, _Table] = {}  # the test that each process prints, by its label
    columns: list[str] = []
    number = 0
    yielded: list[list[Any]] = []  # rows of the tables so far, of this test
    for number, line in log.lines():
        if number == log.unfinished:
            break
        content = CONTENT.match(line)
        if not content:
            continue
        if header := HEADER.match(content[1]):
            columns = header[1].split()
            continue
        table = tables.setdefault(_label(line), _Table())
        if table.rows and (STARTING.match(content[1]) or BEGIN.match(content[1])):
            if table.rows not in yielded:
                yield table.measurement(log, number - 1, fields, tables.values())
                yielded.append(table.rows)
            table = tables[_label(line)] = _Table()
        table.add(log, number, content[1], columns)
    for table in tables.values():
        if (table.rows or table.wrong) and table.rows not in yielded:
            yield table.measurement(log, number, fields, tables.values())
            yielded.append(table.rows)
    if not yielded:
        raise log.error(number or 1, "no size with a time in the table")


def _label(line):
    """The launcher's label of the process that printed a line; "" if there is none."""
    match = LABEL.match(line)
    return (match[1] or match[2]) if match else ""


class _Table:
    """The lines of one test of one process."""

    def __init__(self):
        self.name = None
        self.hosts, self.models, self.rank_lines = {}, set(), {}  # by rank
        self.rows, self.types, self.wrong = [], set(), 0
        self.rooted = False

    def add(self, log, line, text, columns):
        if match := NAMED.match(text):
            self.name = self.name or match[1]
        elif match := RANK.match(text):
            rank = int(match[1])
            if self.rank_lines.setdefault(rank, match[2]) != match[2]:
                raise log.error(
                    line,
                    f"rank {rank} is listed twice, with different processes or devices: two "
                    "programs printed into this log, and which of them printed a line is unknown",
                )
            self.hosts[rank] = match[3]
            self.models.add(match[4])
        elif columns and text[0] != "#":
            self._add_row(dict(zip(columns, text.split(), strict=False)), columns[-1])

    def _add_row(self, row, last):
        size, seconds = count(row["size"], high=2**62), real(row.get("time"), 1e-6, MAX_TIME_S)
        rates = [real(row.get(name), 0) for name in ("algbw", "busbw")]
        if None in (size, seconds, *rates, row.get(last)):
            return
        allowed = MAX_ERROR.get(row["type"], 0.0) if last == "error" else 0.0
        if row[last] != "N/A" and real(row[last], 0, allowed) is None:
            self.wrong += 1
            return
        self.rooted = self.rooted or row.get("root", "-1") != "-1"
        self.types.add((row["type"], row.get("redop", "none")))
        self.rows.append((size, seconds / 1e6, *rates))

    def measurement(self, log, last_line, fields, tables):
        """The Measurement of the test; of all processes' tables, one may have ranks and name."""
        if not self.rows:
            wrong = f": {self.wrong} have wrong values" if self.wrong else ""
            raise log.error(last_line or 1, f"no size with a time in the table{wrong}")
        with_hosts = self if self.hosts else next((other for other in tables if other.hosts), self)
        hosts, given = with_hosts.hosts, _devices(fields)
        ranks = len(hosts) if sorted(hosts) == list(range(len(hosts))) else None
        name = self.name or next((other.name for other in tables if other.name), None)
        devices = given or ranks
        name = name or fields.get("measure") or self._known_by_its_factor(log, last_line, devices)
        if name == ALL_REDUCE and self._disagrees(devices):
            raise log.error(last_line, self._why_it_disagrees(devices))
        kinds = ", ".join(sorted({f"{type_} {redop}" for type_, redop in self.types}))
        result = Measurement(name, f"nccl-tests, out-of-place, {kinds}: means over iterations")
        if self.wrong:
            result.meaning += f"; {self.wrong} sizes with wrong values left out"
        for size, seconds, _, bus in self.rows:
            result.seconds.setdefault(size, []).append(seconds)
            if name != ALL_REDUCE:
                result.gb_per_s.setdefault(size, []).append(bus)
        if with_hosts.models:
            result.conditions["device_model"] = " + ".join(sorted(with_hosts.models))
        nodes = len(set(hosts.values()))
        cut = name == ALL_REDUCE and given and given != ranks and self._is_all_reduce_of(given)
        if ranks and ranks % nodes == 0 and not cut:
            result.conditions |= {"nodes": nodes, "devices_per_node": ranks // nodes}
        return result

    def _known_by_its_factor(self, log, last_line, devices):
        sums = {redop for _, redop in self.types} == {"sum"} and not self.rooted
        if sums and devices and self._is_all_reduce_of(devices):
            return ALL_REDUCE
        raise log.error(
            last_line,
            "the log does not name its collective ('# Collective test starting: ...', which newer "
            f"nccl-tests print), and {devices or 'its'} ranks and bandwidths are not those of an "
            "all-reduce: give nodes and devices_per_node, if it lacks lines of ranks, or the "
            'collective, as --fields \'{"measure": "all_gather"}\'',
        )

    def _factor(self):
        """(bus bandwidth over that of the algorithm, its relative error by printed digits)."""
        _, _, algorithm, bus = max(self.rows, key=lambda row: row[2])
        if not algorithm or not bus:
            return 0.0, 1.0
        return bus / algorithm, HALF_DIGIT / algorithm + HALF_DIGIT / bus

    def _is_all_reduce_of(self, devices):
        factor, doubt = self._factor()
        expected = 2 * (devices - 1) / devices
        return abs(factor - expected) <= (MAX_DOUBT + doubt) * expected

    def _disagrees(self, devices):
        if not devices or devices < 2 or self._factor()[1] > MIN_EXACT:
            return False
        return not self._is_all_reduce_of(devices)

    def _why_it_disagrees(self, devices):
        factor, _ = self._factor()
        near = f", which is that of {round(2 / (2 - factor))}" if 1 <= factor < 1.9999 else ""
        return (
            f"busbw / algbw is {factor:.4g}{near}; an all-reduce of {devices} ranks has "
            f"{2 * (devices - 1) / devices:.4g}: lines of ranks are missing, or --fields has other "
            "nodes or devices_per_node"
        )


def _devices(fields):
    known = [fields.get(name) for name in ("nodes", "devices_per_node")]
    return known[0] * known[1] if all(known) else None
